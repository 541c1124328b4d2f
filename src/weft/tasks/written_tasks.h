// Tasks whose answers a model writes.
#pragma once
#include <string>
#include <vector>

#include "weft/tasks/task.h"

namespace weft {

std::vector<Task> written_tasks();

// The number behind "####", and the last number of a text, without what may differ in writing ($ and commas, a full
// stop at the end); "[invalid]" where there is none.
std::string strict_number(const std::string& text);
std::string last_number(const std::string& text);

// What stands behind the first "the answer is " of a text, to the end of its line but for one character; "[invalid]".
std::string stated_answer(const std::string& text);

// Whether a reply declines what it was asked, by the phrases that such replies have.
bool is_refusal(const std::string& reply);

}  // namespace weft
