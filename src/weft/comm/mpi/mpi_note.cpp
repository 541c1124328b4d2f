#include "weft/comm/mpi/mpi_note.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace weft {

static_assert(sizeof(Note) == 128, "the payload begins at a cache line");

Note Note::of(NoteKind kind, int group, const CommCall& call) {
  Note n{.kind = kind,
         .group = uint8_t(group),
         .dtype = call.dtype,
         .peer = call.peer,
         .line = call.site.line,
         .number = call.number,
         .elements = call.elements};
  const std::string_view op = call.op, file = call.site.file;
  op.copy(n.op, std::min(op.size(), sizeof n.op - 1));
  const size_t length = std::min(file.size(), sizeof n.file - 1);
  file.copy(n.file, length, file.size() - length);
  return n;
}

CommCall Note::call() const {
  return {.op = op, .number = number, .dtype = dtype, .elements = elements, .peer = peer, .site = {file, line}};
}

}  // namespace weft
