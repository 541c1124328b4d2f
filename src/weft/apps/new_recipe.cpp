// `weft new`: a recipe with its reasons, from the command line or five questions.
#include "weft/forecast/new_recipe.h"

#include <charconv>
#include <filesystem>
#include <functional>
#include <iostream>

#include "weft/apps/commands.h"
#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/base/is_there.h"
#include "weft/base/nearest.h"
#include "weft/base/threads.h"
#include "weft/forecast/cluster.h"

namespace weft {
namespace {

constexpr const char* kUsualData = "train.txt";

Purpose purpose_of(const std::string& name) {
  if (const auto purpose = choice_named<Purpose>(name)) return *purpose;
  const auto known = names_of(Purpose());
  const std::string near = nearest_name(name, {known.begin(), known.end()});
  throw ConfigError(fmt::format("\"{}\" is none of {}{}", name, fmt::join(known, ", "),
                                near.empty() ? "" : fmt::format("; did you mean {}?", near)));
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : text + ' ')
    if (c != ' ' && c != ',' && c != '\t')
      word += c;
    else if (!word.empty())
      words.push_back(std::exchange(word, ""));
  return words;
}

int64_t number_of_devices(const std::string& text) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n < 1 || n > kMostRanks)
    throw ConfigError(fmt::format("\"{}\" is no number of devices from 1 to {}", text, kMostRanks));
  return n;
}

// Until an answer is one that `take` does not refuse; nothing stands for `usual`, where that is not empty.
void ask(const std::string& question, const std::string& usual, const std::function<void(const std::string&)>& take) {
  for (;;) {
    std::cerr << question << (usual.empty() ? "" : fmt::format(" [{}]", usual)) << ": " << std::flush;
    std::string answer;
    if (!std::getline(std::cin, answer))
      throw ConfigError(fmt::format(
          "there is no answer to \"{}\"; without questions: weft new MODEL --purpose P --cluster C --devices "
          "N --data FILES",
          question));
    const std::vector<std::string> words = words_of(answer);
    try {
      take(words.empty() ? usual : answer);
      return;
    } catch (const Error& e) { std::cerr << "  " << e.what() << "\n"; }
  }
}

// A recipe names the folder.
std::string folder_of(const std::string& model) {
  const std::filesystem::path path = model;
  if (path.filename() != "config.json") return model;
  return path.has_parent_path() ? path.parent_path().string() : ".";
}

int64_t usual_devices(const std::string& cluster) { return std::max(1, read_cluster(cluster).num_devices); }

void ask_all(NewOptions& o) {
  ask("Which model? A folder with config.json, or that file", "", [&](const std::string& answer) {
    if (answer.empty()) throw ConfigError("a model is needed: only its config.json must be there");
    read_hf_config(answer);
    o.model = answer;
  });
  ask(fmt::format("What for? {}", fmt::join(names_of(Purpose()), ", ")), "pretrain", [&](const std::string& answer) {
    purpose_of(answer);
    o.purpose = answer;
  });
  ask("On which devices? A name as H100-SXM, or a cluster's file", "", [&](const std::string& answer) {
    read_cluster(answer);
    o.cluster = answer;
  });
  ask("How many of them?", std::to_string(usual_devices(o.cluster)),
      [&](const std::string& answer) { o.devices = number_of_devices(answer); });
  ask("Which data? Files of text or tokens, or a dataset's folder", kUsualData,
      [&](const std::string& answer) { o.data = words_of(answer); });
}

void require_no_file(const std::string& out) {
  if (is_name_taken(out))
    throw ConfigError(fmt::format("--out {}: is there already, and stays; name another file", out));
}

}  // namespace

int run_new(const NewOptions& options) {
  NewOptions o = options;
  require_no_file(o.out);
  if (o.model.empty()) ask_all(o);
  if (o.cluster.empty())
    throw ConfigError(
        "--cluster is missing: on which devices? A name as H100-SXM, or a file (weft bench machine writes one)");
  const ClusterSpec cluster = read_cluster(o.cluster);
  const NewRecipe made = new_recipe({.model = folder_of(o.model),
                                     .purpose = purpose_of(o.purpose),
                                     .data = o.data.empty() ? std::vector<std::string>{kUsualData} : o.data,
                                     .devices = o.devices > 0 ? o.devices : std::max(1, cluster.num_devices),
                                     .seq_length = o.seq_length,
                                     .threads = usable_cores()},
                                    read_hf_config(o.model), cluster, Profiles::built_in());
  require_no_file(o.out);
  write_file_durably(o.out, made.toml, kOwnName);
  std::cout << made.toml << fmt::format("\n{} written; now: weft plan {} --cluster {}\n", o.out, o.out, o.cluster);
  return kExitOk;
}

}  // namespace weft
