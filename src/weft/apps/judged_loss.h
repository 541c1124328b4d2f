// What a model loses by being written in another form.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "weft/apps/commands.h"
#include "weft/models/model_spec.h"

namespace weft {

class JudgedLoss {
 public:
  // Measures the model's loss on o.data, of which there is some, by the ids of `tokenizer`; "none": the model's own.
  JudgedLoss(const ExportOptions& o, const std::filesystem::path& model, const ModelSpec& spec,
             const std::string& tokenizer);
  // Measures what was written and prints both. Throws ConfigError where the loss rises by more than o.max_loss:
  // `option` says what was asked for, `advice` what to do.
  void judge(const std::filesystem::path& written, std::string_view option, std::string_view advice) const;

  int64_t window() const { return window_; }  // tokens of a text at once

 private:
  double loss_of(const std::filesystem::path& model) const;
  const ExportOptions& o_;
  const std::string tokenizer_;
  const int64_t window_;
  const double before_;
};

}  // namespace weft
