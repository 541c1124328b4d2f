// Where the tensors of safetensors files will lie, before a byte of them is written: a function of their names, types
// and shapes, so that several ranks can write one file together.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "weft/checkpoint/safetensors_header.h"

namespace weft {

struct TensorInFile {
  std::string name;
  FileDType dtype = FileDType::f32;
  std::vector<int64_t> shape;
  int64_t num_bytes() const;
  // The size of the words by which its bytes are hashed (word_sum.h), and which one rank writes whole.
  int64_t word_bytes() const { return bits_of(dtype) == 8 ? 1 : 4; }
};

using SafetensorsMetadata = std::map<std::string, std::string>;
// What other programs look for in a model's file.
inline SafetensorsMetadata model_metadata() { return {{"format", "pt"}}; }

// In a file, tensors stand by alignment, the widest first, then by name, whatever their order here; the header is
// padded with spaces to a multiple of 8. CheckFailure where names repeat.
class SafetensorsLayout {
 public:
  struct File {
    std::string name;
    std::string head;                   // all before the data
    std::vector<TensorInFile> tensors;  // in the order of their data
    int64_t bytes;                      // of all
  };
  // One file.
  SafetensorsLayout(std::string file, std::vector<TensorInFile> tensors, const SafetensorsMetadata& metadata);
  // model.safetensors, or, where that would hold more than `max_file_bytes` of numbers,
  // model-00001-of-0000N.safetensors ... and model.safetensors.index.json: files are filled in the order of `tensors`;
  // a tensor larger than that has its own.
  static SafetensorsLayout of_model(std::vector<TensorInFile> tensors, int64_t max_file_bytes = 5'000'000'000);

  const std::vector<File>& files() const { return files_; }
  const std::string& index() const { return index_; }  // text of the index; empty: there is none
  struct Place {
    size_t file;
    int64_t offset;  // bytes from the beginning of the file
    int64_t bytes;
    size_t number;  // of all tensors, in the order of files and of the data in them
    int64_t word_bytes;
  };
  size_t num_tensors() const { return places_.size(); }
  Place find(std::string_view tensor) const;

 private:
  SafetensorsLayout() = default;
  void add(std::string file, std::vector<TensorInFile> tensors, const SafetensorsMetadata& metadata);
  std::vector<File> files_;
  std::string index_;
  std::map<std::string, Place, std::less<>> places_;
};

}  // namespace weft
