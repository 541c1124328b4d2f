#include "weft/apps/dialogue.h"

#include <istream>
#include <ostream>

#include "weft/base/error.h"

namespace weft {
namespace {

// The next message; none: the input has ended.
std::optional<std::string> read_message(const Dialogue::Input& input, std::ostream& out) {
  std::string line;
  while (true) {
    if (input.shows_prompt) out << "> " << std::flush;
    if (!std::getline(input.in, line)) break;
    if (line.ends_with('\r')) line.pop_back();
    if (line.find_first_not_of(" \t") != line.npos) return line;
  }
  if (input.in.bad()) throw FileError("standard input: cannot be read");
  if (input.shows_prompt) out << std::endl;
  return {};
}

// What the first rank has, on every rank. Collective. Blocks.
std::optional<std::string> on_all_ranks(Communicator& world, const std::optional<std::string>& mine) {
  double size = mine ? double(mine->size()) + 1 : 0;  // the other ranks add zeros
  world.all_reduce({&size, DType::f64, {1}}).wait();
  if (size == 0) return {};
  std::vector<double> bytes(size_t(size), 0.0);
  for (size_t i = 0; mine && i < mine->size(); ++i) bytes[i] = double(uint8_t((*mine)[i]));
  world.all_reduce({bytes.data(), DType::f64, {int64_t(bytes.size())}}).wait();
  std::string text;
  for (size_t i = 0; i + 1 < bytes.size(); ++i) text += char(uint8_t(bytes[i]));
  return text;
}

bool is_first(const TextGenerator& generator) { return generator.mesh().world->rank() == 0; }

// Why a reply has no end; empty: it has one.
std::string why_cut(const ReplySpec& s, const Tokens& prompt, const Tokens& tokens) {
  if (int64_t(tokens.size()) == s.max_tokens)
    return fmt::format("is cut after {} tokens; --max-tokens allows more", s.max_tokens);
  if (int64_t(prompt.size() + tokens.size()) < s.context) return "";
  return fmt::format("is cut: with it the conversation has the {} tokens that {} at once", s.context, s.sees);
}

void tell_rates(const ReplySpec& s, int64_t read, const std::vector<Tokens>& texts,
                const GenerateRequest::Times& times) {
  if (s.tells_rates) s.notes << rates_text(read, texts, times);
}

// Of a batch: when all have been written.
void say_replies(const ReplySpec& s, const std::vector<Tokens>& prompts, const std::vector<Tokens>& texts) {
  for (size_t i = 0; i < texts.size(); ++i) {
    chat::Reply reply = s.prompts.reply_to(prompts[i]);
    for (const int32_t token : texts[i]) reply.take(token);
    const std::string cut = reply.has_ended() ? "" : why_cut(s, prompts[i], texts[i]);
    if (!reply.has_ended() && cut.empty()) reply.end();
    s.out << reply.text() << std::endl;
    if (!cut.empty()) s.notes << fmt::format("note: reply {} {}\n", i + 1, cut);
  }
}

// To one prompt, as its tokens come.
struct Written {
  std::string text;
  size_t tokens;
};
Written write_reply(TextGenerator& generator, const ReplySpec& s, GenerateRequest request) {
  const Tokens& prompt = request.prompts[0];
  const bool speaks = is_first(generator);
  chat::Reply reply = s.prompts.reply_to(prompt);
  GenerateRequest::Times times;
  request.times = &times;
  request.ends = [&](int64_t, int32_t token) {
    const TextEnds ends = take_token(reply, token);
    if (speaks) s.out << reply.news() << std::flush;
    return ends;
  };
  const std::vector<Tokens> texts = generate_texts(generator, request);
  if (speaks) {
    s.out << reply.rest() << std::endl;
    if (!reply.has_ended()) s.notes << "note: the reply " << why_cut(s, prompt, texts[0]) << "\n";
    tell_rates(s, times.fed, texts, times);
  }
  return {reply.text(), texts[0].size()};
}

}  // namespace

void reply_to_each(TextGenerator& generator, const ReplySpec& s, const std::vector<Tokens>& prompts) {
  GenerateRequest request{.prompts = prompts, .how = s.how, .max_tokens = s.max_tokens};
  if (prompts.size() == 1) {
    write_reply(generator, s, request);
    return;
  }
  std::vector<chat::Reply> replies;
  for (const Tokens& prompt : prompts) replies.push_back(s.prompts.reply_to(prompt));
  GenerateRequest::Times times;
  request.times = &times;
  request.ends = [&](int64_t prompt, int32_t token) { return take_token(replies[size_t(prompt)], token); };
  const std::vector<Tokens> texts = generate_texts(generator, request);
  if (!is_first(generator)) return;
  say_replies(s, prompts, texts);
  int64_t read = 0;
  for (const Tokens& prompt : prompts) read += int64_t(prompt.size());
  tell_rates(s, read, texts, times);
}

bool Dialogue::run() {
  bool all = true;
  while (const auto message = wait_message()) all = answer(*message) && all;
  return all;
}

std::optional<std::string> Dialogue::wait_message() {
  return on_all_ranks(*generator_.mesh().world, is_first(generator_) ? read_message(input_, s_.out) : std::nullopt);
}

bool Dialogue::answer(const std::string& message) {
  turns_.push_back(message);
  const std::vector<Tokens> prompt{s_.prompts.ids_of(turns_)};
  if (const auto tokens = int64_t(prompt[0].size()); tokens >= s_.context) {
    turns_.pop_back();
    if (is_first(generator_))
      s_.notes << fmt::format(
          "the message is left out: with it the conversation has {} tokens, and {} {} at once; say it in fewer words, "
          "begin a new conversation, or let the model see more by --context\n",
          tokens, s_.sees, s_.context);
    return false;
  }
  const auto [text, tokens] = write_reply(
      generator_, s_,
      {.prompts = prompt, .how = s_.how, .max_tokens = s_.max_tokens, .stay = true, .first_choice = choices_});
  turns_.push_back(text);
  choices_ += tokens + 1;
  return true;
}

std::string rates_text(int64_t read, const std::vector<Tokens>& texts, const GenerateRequest::Times& times) {
  int64_t written = 0;
  for (const Tokens& text : texts) written += text.empty() ? 0 : int64_t(text.size()) - 1;
  return fmt::format("read {} tokens at {:.1f}/s, wrote {} at {:.1f}/s\n", read, double(read) / times.prompts_s,
                     written, written > 0 ? double(written) / times.tokens_s : 0);
}

}  // namespace weft
