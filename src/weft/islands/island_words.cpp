#include "weft/islands/island_words.h"

#include <functional>

#include "weft/base/json.h"

namespace weft {
namespace {

constexpr int64_t kWordsFormat = 1, kMostRound = int64_t{1} << 53;
constexpr JsonLimits kLimits{.max_bytes = 64 << 10, .max_depth = 4};

void say_json(IslandChannel& channel, const nlohmann::json& json) { channel.send_words(json.dump()); }

// The next words, which are to say `what`, read by `f`.
template <class F>
auto hear(IslandChannel& channel, const char* what, const F& f) {
  const std::string text = channel.receive_words(), source = fmt::format("{} says what nobody asked", channel.peer());
  try {
    const nlohmann::json json = parse_json(text, source, kLimits);
    const JsonFields fields(json, source);
    const std::string said = fields.string("say");
    if (said == "refusal") throw RefusedIsland(fields.string("why"));
    const std::string due = what;
    if (said != due && !(said == "farewell" && due == "offer") &&
        !(said == "wait" && (due == "mean" || due == "welcome")))
      throw ChannelError(fmt::format("{}: {} in place of \"{}\"", source, in_quotes(said), due));
    return f(fields);
  } catch (const FileError& e) { throw ChannelError(e.what()); }
}

int64_t round_in(const JsonFields& fields, const char* key, int64_t least = 0) {
  return fields.integer(key, {.min = least, .max = kMostRound});
}

OuterAge age_in(const JsonFields& fields) {
  const OuterAge age{
      .rounds = round_in(fields, "rounds"), .step = round_in(fields, "step"), .since = round_in(fields, "since")};
  if (age.since > age.rounds) fields.fail("since", fmt::format("at most {}", age.rounds));
  return age;
}
void put_age(nlohmann::json& json, const OuterAge& age) {
  json["rounds"] = age.rounds;
  json["step"] = age.step;
  json["since"] = age.since;
}

}  // namespace

void say(IslandChannel& channel, const Hello& h) {
  nlohmann::json json{{"say", "hello"},   {"format", kWordsFormat}, {"number", h.number}, {"state", h.state},
                      {"model", h.model}, {"settings", h.settings}, {"data", h.data}};
  put_age(json, h.age);
  say_json(channel, json);
}

Hello hear_hello(IslandChannel& channel) {
  return hear(channel, "hello", [](const JsonFields& f) {
    if (f.integer("format", {.min = 1}) != kWordsFormat)
      f.fail("format", fmt::format("{}: take the same weft on both sides", kWordsFormat));
    return Hello{.number = f.integer("number", {.min = 0}),
                 .age = age_in(f),
                 .state = f.string("state"),
                 .settings = f.string("settings"),
                 .model = f.string("model"),
                 .data = f.string("data")};
  });
}

void say(IslandChannel& channel, const Welcome& w) {
  constexpr const char* kDo[] = {"go", "give", "take"};
  nlohmann::json json{{"say", "welcome"}, {"do", kDo[size_t(w.what)]}, {"counted", w.counted}};
  put_age(json, w.age);
  say_json(channel, json);
}

std::optional<Welcome> hear_welcome(IslandChannel& channel) {
  return hear(channel, "welcome", [](const JsonFields& f) -> std::optional<Welcome> {
    if (f.string("say") == "wait") return {};
    const std::string what = f.string("do");
    if (what != "go" && what != "give" && what != "take") f.fail("do", "\"go\", \"give\" or \"take\"");
    return Welcome{.what = what == "go"     ? Welcome::Do::go
                           : what == "give" ? Welcome::Do::give
                                            : Welcome::Do::take,
                   .age = age_in(f),
                   .counted = round_in(f, "counted")};
  });
}

void say(IslandChannel& channel, const Reply& r) {
  nlohmann::json json{{"say", "reply"}, {"do", r.is_late ? "late" : "send"}, {"counted", r.counted}};
  put_age(json, r.age);
  say_json(channel, json);
}

Reply hear_reply(IslandChannel& channel) {
  return hear(channel, "reply", [](const JsonFields& f) {
    const std::string what = f.string("do");
    if (what != "late" && what != "send") f.fail("do", "\"send\" or \"late\"");
    return Reply{.is_late = what == "late", .age = age_in(f), .counted = round_in(f, "counted")};
  });
}

void say(IslandChannel& channel, const Mean& m) {
  say_json(channel, {{"say", "mean"}, {"round", m.round}, {"islands", m.islands}, {"step", m.step}});
}

Mean hear_mean(IslandChannel& channel) {
  return hear(channel, "mean", [](const JsonFields& f) {
    if (f.string("say") == "wait") return Mean();
    return Mean{
        .round = round_in(f, "round", 1), .islands = f.integer("islands", {.min = 1}), .step = round_in(f, "step")};
  });
}

void say_wait(IslandChannel& channel) { say_json(channel, {{"say", "wait"}}); }

void say_refusal(IslandChannel& channel, const std::string& why) {
  say_json(channel, {{"say", "refusal"}, {"why", why}});
}

void say(IslandChannel& channel, const RoundOffer& o) {
  say_json(channel, {{"say", "offer"}, {"round", o.round}, {"step", o.step}});
}
void say_farewell(IslandChannel& channel) { say_json(channel, {{"say", "farewell"}}); }

RoundOffer hear_offer(IslandChannel& channel) {
  return hear(channel, "offer", [](const JsonFields& f) {
    if (f.string("say") == "farewell") return RoundOffer();
    return RoundOffer{.round = round_in(f, "round", 1), .step = round_in(f, "step")};
  });
}

}  // namespace weft
