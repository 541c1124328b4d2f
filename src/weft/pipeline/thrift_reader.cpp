#include "weft/pipeline/thrift_reader.h"

#include "weft/base/error.h"
#include "weft/base/varint.h"

namespace weft {

int64_t ThriftReader::integer() {
  if (type_ == kByte) return int8_t(byte());
  if (type_ < kByte || type_ > kI64) throw Error("broken metadata: no number where one must be");
  const uint64_t zigzag = varint();
  return int64_t(zigzag >> 1) ^ -int64_t(zigzag & 1);
}

bool ThriftReader::flag() {
  if (type_ != kTrue && type_ != kFalse) throw Error("broken metadata: neither true nor false where one must be");
  return type_ == kTrue;
}

std::string_view ThriftReader::binary() {
  expect(kBinary);
  const uint64_t size = varint();
  skip_bytes(size);
  return bytes_.substr(at_ - size_t(size), size_t(size));
}

bool ThriftReader::next_field(int& id) {
  const uint8_t head = byte();
  if (head == 0) return false;
  type_ = kI16;
  if (head >> 4 != 0)
    id = int16_t(id + (head >> 4));
  else
    id = int(int16_t(integer()));
  type_ = head & 15;
  return true;
}

uint64_t ThriftReader::list_header(uint8_t& type) {
  const uint8_t head = byte();
  type = head & 15;
  const uint64_t size = head >> 4 == 15 ? varint() : head >> 4;
  if (size > bytes_.size() - at_) throw Error("broken metadata: a list that is longer than the rest");
  return size;
}

void ThriftReader::expect(uint8_t type) const {
  if (type_ != type) throw Error(fmt::format("broken metadata: type {} where {} must be", type_, type));
}

void ThriftReader::enter() {
  constexpr int kMostDepth = 32;
  if (++depth_ > kMostDepth) throw Error("broken metadata: nested too deep");
}

void ThriftReader::skip(uint8_t type) {
  type_ = type;
  if (type == kTrue || type == kFalse) return;
  if (type == kByte) return skip_bytes(1);
  if (type <= kI64) return void(varint());
  if (type == kDouble) return skip_bytes(8);
  if (type == kBinary) return void(binary());
  if (type == kStruct) return for_each_field([](int) { return false; });
  enter();
  if (type == kList || type == kSet) {
    uint8_t element = 0;
    for (uint64_t left = list_header(element); left > 0; --left) skip_element(element);
  } else if (type == kMap) {
    const uint64_t size = varint();
    if (size > bytes_.size() - at_) throw Error("broken metadata: a map that is longer than the rest");
    const uint8_t types = size > 0 ? byte() : 0;
    for (uint64_t left = size; left > 0; --left) {
      skip_element(types >> 4);
      skip_element(types & 15);
    }
  } else {
    throw Error(fmt::format("broken metadata: there is no type {}", type));
  }
  leave();
}

void ThriftReader::skip_element(uint8_t type) { type == kTrue || type == kFalse ? skip_bytes(1) : skip(type); }

uint8_t ThriftReader::byte() {
  skip_bytes(1);
  return uint8_t(bytes_[at_ - 1]);
}

uint64_t ThriftReader::varint() {
  if (const auto value = read_varint([&] { return byte(); })) return *value;
  throw Error("broken metadata: a number that does not end");
}

void ThriftReader::skip_bytes(uint64_t size) {
  if (size > bytes_.size() - at_) throw Error("broken metadata: it ends too early");
  at_ += size_t(size);
}

}  // namespace weft
