#include "weft/chat/built_in_templates.h"

namespace weft::chat {
namespace {

// Messages of other roles than those that a model knows are refused rather than left out.
constexpr BuiltInTemplate kTemplates[] = {
    {"chatml",
     R"({% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %})"
     R"({% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %})",
     "", ""},
    // Meta-Llama-3-8B-Instruct
    {"llama-3",
     R"({{ bos_token }}{% for message in messages %})"
     R"({{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}{% endfor %})"
     R"({% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %})",
     "<|begin_of_text|>", "<|eot_id|>"},
    // Mistral-7B-Instruct-v0.2; a system's message stands before the first one of the user, as in later versions
    {"mistral",
     R"({{ bos_token }}{% set system = messages[0]['content'] + '\n\n' if messages[0]['role'] == 'system' else '' %})"
     R"({% for message in (messages[1:] if system else messages) %})"
     R"({% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %})"
     R"({{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %})"
     R"({% if message['role'] == 'user' %}{{ '[INST] ' + (system if loop.first else '') + message['content'] + ' [/INST]' }})"
     R"({% elif message['role'] == 'assistant' %}{{ message['content'] }}{{ eos_token }})"
     R"({% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %})",
     "<s>", "</s>"},
    // gemma-2-2b-it; a system's message stands before the first one of the user, as in Gemma 3. Theirs write a turn of
    // any other role, such as tool, by its name, which the models do not know
    {"gemma",
     R"({{ bos_token }}{% set system = messages[0]['content'] | trim + '\n\n' if messages[0]['role'] == 'system' else '' %})"
     R"({% for message in (messages[1:] if system else messages) %})"
     R"({% if message['role'] not in ['user', 'assistant'] %})"
     R"({{ raise_exception('Only user, assistant and a first system role are supported!') }}{% endif %})"
     R"({% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %})"
     R"({{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %})"
     R"({{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else 'user') + '\n' + )"
     R"((system if loop.first else '') + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %})"
     R"({% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %})",
     "<bos>", "<eos>"},
    // zephyr-7b-beta
    {"zephyr",
     R"({% for message in messages %}{% if message['role'] in ['user', 'system', 'assistant'] %})"
     R"({{ '<|' + message['role'] + '|>\n' + message['content'] }}{{ eos_token }}{{ '\n' }})"
     R"({% else %}{{ raise_exception('Only user, system and assistant roles are supported!') }}{% endif %}{% endfor %})"
     R"({% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %})",
     "<s>", "</s>"},
    // Stanford Alpaca's prompts; that for an instruction with an input, where a message of the user has one
    {"alpaca",
     R"({{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ messages[0]['content'] }})"
     R"({% elif '\n\n### Input:\n' in messages[0]['content'] %}{{ 'Below is an instruction that describes a task, paired )"
     R"(with an input that provides further context. Write a response that appropriately completes the request.' }})"
     R"({% else %}{{ 'Below is an instruction that describes a task. Write a response that appropriately completes the )"
     R"(request.' }}{% endif %}{% for message in messages %})"
     R"({% if message['role'] == 'user' %}{{ '\n\n### Instruction:\n' + message['content'] }})"
     R"({% elif message['role'] == 'assistant' %}{{ '\n\n### Response:\n' + message['content'] }}{{ eos_token }})"
     R"({% elif not (loop.first and message['role'] == 'system') %})"
     R"({{ raise_exception('Only user, assistant and a first system role are supported!') }}{% endif %}{% endfor %})"
     R"({% if add_generation_prompt %}{{ '\n\n### Response:\n' }}{% endif %})",
     "<s>", "</s>"},
};

}  // namespace

const BuiltInTemplate* built_in_template(std::string_view name) {
  for (const BuiltInTemplate& one : kTemplates)
    if (one.name == name) return &one;
  return nullptr;
}

std::string built_in_template_names() {
  std::string names;
  for (const BuiltInTemplate& one : kTemplates) (names += names.empty() ? "" : ", ") += one.name;
  return names;
}

}  // namespace weft::chat
