// The live page of a run, served by the process that leads it, to its machine alone (run.page).
#pragma once
#include <memory>
#include <string>

#include "weft/page/page_server.h"
#include "weft/recipe/recipe.h"

namespace weft {

// A run does not depend on it: where it cannot be served, standard error says so, and there is none. It reads the run's
// folder when somebody looks, on threads that give way to all others. Throws NotBuilt where this weft has no page.
class RunPage {
 public:
  explicit RunPage(const Recipe& recipe);
  std::string url() const { return server_ ? server_->url() : ""; }  // empty: it is not served

 private:
  std::unique_ptr<LivePage> page_;
  std::unique_ptr<PageServer> server_;
};

}  // namespace weft
