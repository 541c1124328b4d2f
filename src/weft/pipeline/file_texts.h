// Reads the texts in a file without a pipeline.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "weft/data/id_rows.h"
#include "weft/data/text_tokens.h"

namespace weft {

// All of a file, decompressed, in memory. Throws FileError where it cannot be read to its end.
std::string whole_text(const std::filesystem::path& file);

// Hands over the string under `text_key` of each row of a JSON or Parquet file, in order, and the fraction of the file
// that is done. Throws FileError, "FILE: row 7: ...", where a row cannot be read or has none; UnreadFile.
void for_each_row_text(const std::filesystem::path& file, const std::string& text_key,
                       const std::function<void(std::string_view text, double done)>& take);
// Whether a file has such rows, by its name.
bool has_row_texts(const std::filesystem::path& file);

// What tokenize_once() reads with that: Parquet, JSON that is no lines or whose text is a template (row_template.h),
// and whatever is compressed.
DocumentFiles more_document_files();
// The same for rows with a prompt and its completions: Parquet, JSON that is no lines, and what is compressed.
RowFiles more_row_files();

}  // namespace weft
