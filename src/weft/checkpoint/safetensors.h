// Reading safetensors: one file, or a model's folder of them.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/mapped_file.h"
#include "weft/checkpoint/convert.h"
#include "weft/checkpoint/safetensors_header.h"

namespace weft {

// One file, mapped. Opening it judges all of it (see parse_safetensors_header); afterwards nothing can be out of
// bounds. Numbers are not judged: NaN and infinities are legal. Movable.
class SafetensorsFile {
 public:
  // Throws FileError.
  static SafetensorsFile open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  const std::vector<SafetensorsEntry>& tensors() const { return header_.tensors; }  // by offset
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }

  // nullptr where there is none of this name.
  const SafetensorsEntry* find(std::string_view name) const { return header_.find(name); }
  // The bytes of one of tensors(), at any alignment.
  std::span<const std::byte> bytes(const SafetensorsEntry& entry) const;
  void check_whole() const { file_.check_whole(); }  // see MappedFile: to be called once bytes have been read

 private:
  SafetensorsFile(MappedFile file, SafetensorsHeader header) : file_(std::move(file)), header_(std::move(header)) {}

  MappedFile file_;
  SafetensorsHeader header_;
};

// A model's folder: model.safetensors, or model.safetensors.index.json and the files it names. Movable.
class SafetensorsFolder {
 public:
  struct Tensor {
    const SafetensorsEntry* entry = nullptr;
    const SafetensorsFile* file = nullptr;
    const std::string& name() const { return entry->name; }
  };

  // Where both are there, model.safetensors is read, as other programs do. An index is refused unless it tells exactly
  // what is in its files: each tensor in the file named for it, no tensor twice, none unnamed; and it names plain files
  // of the same folder. Throws FileError that names every tensor in question (the first 20 of them).
  static SafetensorsFolder open(const std::filesystem::path& folder);
  // A folder of one file, whatever it is called: path() is the file's.
  static SafetensorsFolder of_file(const std::filesystem::path& file);

  const std::vector<Tensor>& tensors() const { return tensors_; }  // by name
  const Tensor* find(std::string_view name) const;
  // As a matrix for read_matrix. Throws FileError where its numbers are of a type that weft cannot convert.
  FileMatrix matrix(const Tensor& tensor) const;
  std::span<const std::byte> bytes(const Tensor& tensor) const { return tensor.file->bytes(*tensor.entry); }
  void check_whole() const {
    for (const SafetensorsFile& file : files_) file.check_whole();
  }

  const std::filesystem::path& path() const { return path_; }

 private:
  explicit SafetensorsFolder(std::filesystem::path path) : path_(std::move(path)) {}
  void open_indexed(const std::filesystem::path& index);
  void collect();

  std::filesystem::path path_;
  std::vector<SafetensorsFile> files_;  // not resized once tensors_ point into them
  std::vector<Tensor> tensors_;
};

// The rows and columns that FileMatrix gives to a tensor of this shape.
int64_t matrix_rows(std::span<const int64_t> shape);
int64_t matrix_cols(std::span<const int64_t> shape);

}  // namespace weft
