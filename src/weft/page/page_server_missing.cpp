// Instead of page_server.cpp, in a build without cpp-httplib.
#include "weft/base/not_built.h"
#include "weft/page/page_server.h"

namespace weft {

struct PageServer::Listener {};

PageServer::PageServer(LivePage&, const Spec&) {
  throw NotBuilt("the live page", "cpp-httplib",
                 "`weft report`, `weft runs show` and tensorboard --logdir RUN/tensorboard need none");
}
PageServer::~PageServer() = default;
// Nobody gets here: there is no PageServer.
int PageServer::port() const { return 0; }
std::string PageServer::url() const { return {}; }

}  // namespace weft
