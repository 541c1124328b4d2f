// The files by which a batch system, a cluster or plain ssh start `weft supervise`: as text. docs/launching.md
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace weft {

struct LaunchSpec {
  std::string recipe = {};                  // its path, as the job sees it
  std::vector<std::string> overrides = {};  // "train.seed=7"
  std::string name = {};                    // of the job: a-z, 0-9 and -
  std::string made_by = {};                 // the command that makes this file
  int64_t ranks = 1, nodes = 1;             // ranks: a multiple of nodes
  int64_t threads = 0;                      // of a rank; 0: as many cores as a node has for it
  bool gpus = false;                        // one for each rank
  int64_t node_bytes = 0;                   // that the ranks of a node take on the host, as planned
  int64_t notice_s = 60;                    // from the request to stop to the end: longer than a step and a save
  // Slurm. chain: jobs of an array, one after the other, for clusters that limit a job's time; 0: one that is requeued.
  std::string partition = {}, time_limit = {};
  int64_t chain = 0;
  // Kubernetes: the image, and the claim of a volume that all pods share, with the folder where they see it.
  std::string image = {}, claim = {}, mount = {};
  // Plain ssh: the hosts' names, and the hostfile that has them.
  std::vector<std::string> hosts = {};
  std::string hostfile = {};

  int64_t slots() const { return ranks / nodes; }
};

// For sbatch.
std::string slurm_script(const LaunchSpec& spec);
// jobset.x-k8s.io/v1alpha2: a leader and workers with sshd, which its header says how to give a key.
std::string jobset_yaml(const LaunchSpec& spec);
// kubeflow.org/v2beta1
std::string mpijob_yaml(const LaunchSpec& spec);
// Looks at each host first; to be run on one of them.
std::string ssh_script(const LaunchSpec& spec);

// A name of a job made of any text: "runs/My first" gives "my-first".
std::string job_name_of(const std::string& text);
// `weft supervise` as the job runs it, over the hosts of a hostfile where there are several.
std::vector<std::string> supervise_words(const LaunchSpec& spec, const std::string& hostfile);
// Of a node, in MiB: a quarter more than planned, for what the kernel keeps of files.
int64_t memory_mib(const LaunchSpec& spec);
// The words as one line of a shell.
std::string shell_line(const std::vector<std::string>& words);

}  // namespace weft
