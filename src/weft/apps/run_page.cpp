#include "weft/apps/run_page.h"

#include <fmt/format.h>

#include <iostream>

#include "weft/apps/watch.h"
#include "weft/base/not_built.h"

namespace weft {

RunPage::RunPage(const Recipe& recipe) {
  if (!recipe.run.page) return;
  try {
    page_ = std::make_unique<LivePage>(page_of_runs({recipe.run.dir}, /*in_a_run=*/true));
    const auto on_end = [] { std::cerr << "note: the page has ended; the run goes on without it\n"; };
    server_ = std::make_unique<PageServer>(
        *page_, PageServer::Spec{.port = int(recipe.run.page_port), .in_a_run = true, .on_end = on_end});
    std::cerr << fmt::format("the page: {}\n", url());
  } catch (const NotBuilt&) { throw; } catch (const std::exception& e) {
    std::cerr << fmt::format("note: the run goes on without its page: {}\n", e.what());
  }
}

}  // namespace weft
