#include "weft/checkpoint/manifest.h"

#include <charconv>

#include "weft/base/hashing.h"
#include "weft/base/json.h"
#include "weft/base/mapped_file.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr int kFormat = 2;  // of checkpoints; the first had no manifest
constexpr std::string_view kBegin = "{\"xxh128\": \"", kThen = "\",\n";
constexpr size_t kHashDigits = 32;

nlohmann::ordered_json to_json(const Manifest::File& file) {
  nlohmann::ordered_json json{{"bytes", file.bytes}, {"xxh128", file.head}};
  if (file.tensors.empty()) return json;
  json["head_bytes"] = file.head_bytes;
  auto& tensors = json["tensors"] = nlohmann::ordered_json::array();
  for (const Manifest::Tensor& t : file.tensors) {
    tensors.push_back({{"name", t.name}, {"bytes", t.bytes}, {"sum", fmt::format("{:016x}", t.sum)}});
    if (t.word_bytes != 4) tensors.back()["word_bytes"] = t.word_bytes;
  }
  return json;
}

uint64_t sum_in(const JsonFields& tensor) {
  const std::string digits = tensor.string("sum");
  uint64_t sum = 0;
  const char* last = digits.data() + digits.size();
  const auto [end, error] = std::from_chars(digits.data(), last, sum, 16);
  if (error != std::errc() || end != last) tensor.fail("sum", "hexadecimal digits");
  return sum;
}

Manifest::File file_of(const JsonFields& json, const std::string& source) {
  Manifest::File file{.bytes = json.integer("bytes", {.min = 0}),
                      .head_bytes = json.integer("bytes", {.min = 0}),
                      .head = json.string("xxh128"),
                      .tensors = {}};
  if (!json.has("tensors")) return file;
  file.head_bytes = json.integer("head_bytes", {.min = 0});
  int64_t left = file.bytes - file.head_bytes;
  for (const nlohmann::json& entry : json.list("tensors", "a list of tensors")) {
    const JsonFields t(entry, source);
    const int64_t word_bytes = t.has("word_bytes") ? t.integer("word_bytes", {.min = 1, .max = 4}) : 4;
    if (word_bytes != 1 && word_bytes != 4) t.fail("word_bytes", "1 or 4");
    file.tensors.push_back({t.string("name"), t.integer("bytes", {.min = 0, .max = left}), sum_in(t), word_bytes});
    left -= file.tensors.back().bytes;
  }
  if (left != 0) json.fail("bytes", "the bytes of its tensors and what is before them");
  return file;
}

}  // namespace

void Manifest::add(const std::string& folder, const SafetensorsLayout& layout, std::span<const uint64_t> sums) {
  size_t next = 0;
  for (const SafetensorsLayout::File& laid_out : layout.files()) {
    File file{.bytes = laid_out.bytes,
              .head_bytes = int64_t(laid_out.head.size()),
              .head = to_hex(hash128(laid_out.head)),
              .tensors = {}};
    for (const TensorInFile& t : laid_out.tensors)
      file.tensors.push_back({t.name, t.num_bytes(), sums[next++], t.word_bytes()});
    files[folder + laid_out.name] = std::move(file);
  }
  WEFT_CHECK(next == sums.size(), "{} sums of {} tensors", sums.size(), next);
}

void Manifest::add_others(const fs::path& checkpoint) {
  std::error_code error;
  for (fs::recursive_directory_iterator at(checkpoint, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().lexically_relative(checkpoint).generic_string();
    if (name == kManifestFile || files.count(name) > 0 || !at->is_regular_file()) continue;
    const MappedFile mapped(at->path());
    const auto bytes = int64_t(mapped.bytes().size());
    files[name] = {.bytes = bytes, .head_bytes = bytes, .head = to_hex(hash128(mapped.text())), .tensors = {}};
  }
  if (error) throw FileError(fmt::format("{}: cannot be listed: {}", checkpoint.string(), error.message()));
}

std::string to_text(const Manifest& manifest) {
  nlohmann::ordered_json json{{"format", kFormat}, {"step", manifest.step}};
  auto& files = json["files"] = nlohmann::ordered_json::object();
  for (const auto& [name, file] : manifest.files) files[name] = to_json(file);
  return with_own_hash(json);
}

std::string with_own_hash(const nlohmann::ordered_json& object) {
  const std::string rest = object.dump(1).substr(2) + "\n";  // without "{\n"
  return std::string(kBegin) + to_hex(hash128(rest)) + std::string(kThen) + rest;
}

void require_own_hash(std::string_view text, std::string_view source) {
  const size_t head = kBegin.size() + kHashDigits + kThen.size();
  const std::string_view rest = text.substr(std::min(head, text.size()));
  if (text.substr(0, text.size() - rest.size()) != std::string(kBegin) + to_hex(hash128(rest)) + std::string(kThen))
    throw DamageError(fmt::format("{}: is not what was saved: its hash does not fit it", source));
}

Manifest parse_manifest(std::string_view text, std::string_view source) {
  require_own_hash(text, source);
  const nlohmann::json json = parse_json(text, source, {.max_bytes = size_t{1} << 30});
  const JsonFields fields(json, std::string(source));
  if (const int64_t format = fields.integer("format", {.min = 1}); format != kFormat)
    fields.fail("format", fmt::format("format {}, which this weft writes; use the weft that wrote it", kFormat));
  Manifest manifest{.step = fields.integer("step", {.min = 0}), .files = {}};
  const JsonFields files = fields.object("files");
  for (const auto& [name, file] : files.json().items()) {
    const std::string where = fmt::format("{}: {}", source, in_quotes(name));
    const fs::path path(name);
    if (path.empty() || path.is_absolute() || path.lexically_normal() != path || *path.begin() == "..")
      files.fail(name, "the path of a file below the checkpoint");
    manifest.files[name] = file_of(JsonFields(file, where), where);
  }
  return manifest;
}

}  // namespace weft
