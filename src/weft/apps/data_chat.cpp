// weft data chat.
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>

#include "weft/apps/commands.h"
#include "weft/apps/data_lines.h"
#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/mapped_file.h"
#include "weft/chat/conversation.h"

namespace weft {
namespace {

// "2024-07-26"; empty: today.
std::tm day_of(const std::string& date) {
  if (!date.empty()) return chat::day_named(date, "--date");
  std::tm day{};
  const std::time_t now = std::time(nullptr);
  localtime_r(&now, &day);
  return day;
}

chat::Value tools_of(const std::string& file) {
  if (file.empty()) return {};
  const MappedFile content(file);
  chat::Value tools = chat::parse_value(content.text(), file);
  if (!tools.holds<chat::List>()) throw FileError(fmt::format("{}: expected a list of tools", file));
  return tools;
}

}  // namespace

int run_data_chat(const ChatOptions& o) {
  const chat::ChatTemplate chat =
      chat::read_chat_template(o.tokenizer, {.file = o.template_file, .name = o.template_name});
  const chat::Value tools = tools_of(o.tools);
  const chat::RenderOptions options{.add_generation_prompt = o.add_generation_prompt, .now = day_of(o.date)};
  const bool ids = o.tokenize || o.mask;
  const auto tokenizer = ids ? read_tokenizer(o.tokenizer, {.pattern = o.pattern}) : nullptr;
  const auto print = [&](const chat::Conversation& c) {
    if (!ids) {
      std::cout
          << nlohmann::json(chat.render(c, options)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
          << "\n";
      return;
    }
    if (o.mask) {
      const auto [tokens, mask] = chat::encode_conversation(chat, *tokenizer, c, options);
      std::cout << "{\"ids\": " << as_list<int32_t>(tokens) << ", \"mask\": " << as_list<uint8_t>(mask) << "}\n";
      return;
    }
    std::vector<int32_t> tokens;
    tokenizer->encode(chat.render(c, options), tokens, SpecialText::kParsed);
    std::cout << "{\"ids\": " << as_list<int32_t>(tokens) << "}\n";
  };
  for_each_line([&](const std::string& line, const std::string& where) {
    chat::Conversation c = chat::read_conversation(line, where, o.messages_key);
    if (c.tools.is_undefined()) c.tools = tools;
    try {
      print(c);
      if (o.mask) return;  // which refuses them
      for (const std::string& name : chat.left_out(c, options))
        std::cerr << fmt::format("note: {}: the template leaves out the {}; for training it is refused\n", where,
                                 in_quotes(name));
    } catch (const Error& e) { throw FileError(fmt::format("{}: {}", where, e.what())); }
  });
  return kExitOk;
}

}  // namespace weft
