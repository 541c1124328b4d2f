// Thrift's compact protocol, in which Parquet describes itself. Hostile bytes give an Error, not a failure.
//   https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
#pragma once
#include <cstdint>
#include <string_view>

namespace weft {

class ThriftReader {
 public:
  // Begins with a struct.
  explicit ThriftReader(std::string_view bytes) : bytes_(bytes) {}
  size_t offset() const { return at_; }

  // For the struct that comes next: take(id) for each field, which reads its value and returns true, or else false for
  // it to be passed over.
  template <class F>
  void for_each_field(const F& take) {
    expect(kStruct);
    enter();
    for (int id = 0; next_field(id);)
      if (!take(id)) skip(type_);
    leave();
  }
  // For the list that comes next: take() for each element, which reads it.
  template <class F>
  void for_each_element(const F& take) {
    expect(kList);
    uint8_t type = 0;
    for (uint64_t left = list_header(type); left > 0; --left) {
      type_ = type;
      take();
    }
  }
  int64_t integer();
  bool flag();
  std::string_view binary();

 private:
  enum : uint8_t { kTrue = 1, kFalse, kByte, kI16, kI32, kI64, kDouble, kBinary, kList, kSet, kMap, kStruct };
  bool next_field(int& id);
  uint64_t list_header(uint8_t& type);
  void expect(uint8_t type) const;
  void enter();
  void leave() { --depth_; }
  void skip(uint8_t type);
  void skip_element(uint8_t type);
  uint8_t byte();
  uint64_t varint();
  void skip_bytes(uint64_t size);

  std::string_view bytes_;
  size_t at_ = 0;
  int depth_ = 0;
  uint8_t type_ = kStruct;  // of what comes next
};

}  // namespace weft
