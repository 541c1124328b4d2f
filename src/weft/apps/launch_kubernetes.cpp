// The files of `weft launch --k8s`. Fields as JobSet v1alpha2, MPIJob v2beta1 and Job v1 have them.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "weft/apps/commands.h"
#include "weft/apps/launch_files.h"
#include "weft/base/error.h"

namespace weft {
namespace {

constexpr int kSshPort = 2222;
// Trying again does not help: a recipe, a world, numbers, checkpoints, or attempts that have come to nothing.
const std::string kHopeless = fmt::format("{}, {}, {}, {}, {}, {}", kExitUsage, kExitWrongWorld, kExitNotFinite,
                                          kExitNoCheckpoint, kExitSpikes, kExitNoProgress);
constexpr int kByTerm = 143;
// Stopped and saved, or ended while it was: the pod was to leave its node.
const std::string kStopped = fmt::format("{}, {}, {}, {}", kExitPreempted, kExitHang, kExitInterrupted, kByTerm);

// JSON's texts are YAML's too.
std::string yaml_text(const std::string& text) { return nlohmann::json(text).dump(); }

// Each line of a text behind so many spaces.
std::string indented(const std::string& text, int spaces) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (end > at) out += std::string(size_t(spaces), ' ') + text.substr(at, end - at);
    out += "\n";
    at = end + 1;
  }
  return out;
}

std::string word_list(const std::vector<std::string>& words) {
  std::string list;
  for (const std::string& word : words) list += (list.empty() ? "[" : ", ") + yaml_text(word);
  return list + "]";
}

std::string regex_of(const std::string& statuses) {
  std::string any;
  for (const char c : statuses) any += c == ',' ? "|" : c == ' ' ? "" : std::string(1, c);
  return any;
}

// What both kinds of pods ask of their node, and the volume with recipe, model, data and run folder.
std::string resources(const LaunchSpec& s) {
  std::string all;
  if (s.threads > 0) all += fmt::format("cpu: {}\n", s.threads * s.slots());
  if (s.node_bytes > 0) all += fmt::format("memory: {}Mi\n", memory_mib(s));
  if (s.gpus) all += fmt::format("nvidia.com/gpu: {}\n", s.slots());
  if (all.empty()) return "";
  return "resources:\n  requests:\n" + indented(all, 4) + "  limits:\n" + indented(all, 4);
}

std::string mounts(const LaunchSpec& s, bool key) {
  return fmt::format("volumeMounts:\n- {{name: data, mountPath: {}}}\n- {{name: shm, mountPath: /dev/shm}}\n{}",
                     yaml_text(s.mount), key ? "- {name: key, mountPath: /etc/weft-ssh, readOnly: true}\n" : "");
}

std::string volumes(const LaunchSpec& s, bool key) {
  return fmt::format(
      "volumes:\n- name: data\n  persistentVolumeClaim: {{claimName: {}}}\n- name: shm\n  emptyDir: "
      "{{medium: Memory}}\n{}",
      yaml_text(s.claim),
      key ? fmt::format("- name: key\n  secret: {{secretName: {}-ssh, defaultMode: 0400}}\n", s.name) : "");
}

// Its name and its network need a moment.
std::string leader_script(const LaunchSpec& s) {
  std::string hosts = fmt::format("echo \"$(hostname) slots={}\" >/tmp/hosts\n", s.slots());
  for (int64_t i = 0; i + 1 < s.nodes; ++i)
    hosts += fmt::format("echo \"{0}-worker-0-{1}.{0} slots={2}\" >>/tmp/hosts\n", s.name, i, s.slots());
  if (s.nodes == 1) hosts.clear();
  const std::string keys = s.nodes == 1 ? ""
                                        : "mkdir -p ~/.ssh && chmod 700 ~/.ssh\n"
                                          "sed 's/^/* /' /etc/weft-ssh/id_ed25519.pub >~/.ssh/known_hosts\n";
  return "set -eu\n" + keys + hosts + "exec " + shell_line(supervise_words(s, s.nodes > 1 ? "/tmp/hosts" : "")) + "\n";
}

std::string worker_script() {
  return fmt::format(
      "mkdir -p /run/sshd\n"
      "exec /usr/sbin/sshd -De -p {} -h /etc/weft-ssh/id_ed25519 -o PidFile=none -o StrictModes=no "
      "-o AuthorizedKeysFile=/etc/weft-ssh/id_ed25519.pub -o PasswordAuthentication=no -o PermitUserEnvironment=no\n",
      kSshPort);
}

std::string pod(const LaunchSpec& s, const std::string& container, bool key) {
  return fmt::format(
      "restartPolicy: Never\nterminationGracePeriodSeconds: {}\ncontainers:\n- name: weft\n  image: {}\n"
      "  workingDir: {}\n{}{}{}{}",
      s.notice_s, yaml_text(s.image), yaml_text(s.mount), indented(container, 2), indented(resources(s), 2),
      indented(mounts(s, key), 2), volumes(s, key));
}

std::string script_of(const std::string& text) {
  return "command: [\"/bin/sh\", \"-c\"]\nargs:\n- |\n" + indented(text, 2);
}

std::string leader_job(const LaunchSpec& s) {
  const std::string agent = fmt::format(
      "env:\n- name: OMPI_MCA_plm_rsh_args\n  value: \"-p {} -i /etc/weft-ssh/id_ed25519 -o BatchMode=yes\"\n",
      kSshPort);
  const bool several = s.nodes > 1;
  return fmt::format(
             "backoffLimit: 0\ncompletions: 1\nparallelism: 1\npodFailurePolicy:\n  rules:\n"
             "  - action: FailJob\n    onExitCodes: {{containerName: weft, operator: In, values: [{}]}}\n"
             "  - action: FailJob\n    onExitCodes: {{containerName: weft, operator: In, values: [{}]}}\n"
             "  - action: Ignore  # the node goes: another pod goes on from the newest checkpoint\n"
             "    onPodConditions: [{{type: DisruptionTarget, status: \"True\"}}]\n",
             kHopeless, kStopped) +
         "template:\n  spec:\n" + indented(pod(s, script_of(leader_script(s)) + (several ? agent : ""), several), 4);
}

std::string workers_job(const LaunchSpec& s) {
  const std::string probes = fmt::format(
      "ports: [{{containerPort: {0}}}]\nreadinessProbe: {{tcpSocket: {{port: {0}}}, periodSeconds: 2}}\n"
      "livenessProbe: {{tcpSocket: {{port: {0}}}, periodSeconds: 10, failureThreshold: 6}}\n",
      kSshPort);
  return fmt::format(
             "backoffLimit: 1000000  # one that is gone comes back, and the supervisor takes it in again\n"
             "completionMode: Indexed\ncompletions: {0}\nparallelism: {0}\ntemplate:\n  spec:\n",
             s.nodes - 1) +
         indented(pod(s, script_of(worker_script()) + probes, true), 4);
}

std::string replicated(const std::string& name, const std::string& more, const std::string& job) {
  return fmt::format("- name: {}\n  replicas: 1\n{}  template:\n    spec:\n{}", name, more, indented(job, 6));
}

std::string key_words(const LaunchSpec& s) {
  return fmt::format(
      "# Its pods talk by ssh with a key of the job's own, made once:\n"
      "#   ssh-keygen -q -t ed25519 -N '' -f id_ed25519\n"
      "#   kubectl create secret generic {}-ssh --from-file=id_ed25519 --from-file=id_ed25519.pub\n",
      s.name);
}

}  // namespace

std::string jobset_yaml(const LaunchSpec& s) {
  const bool several = s.nodes > 1;
  std::string text =
      fmt::format("# kubectl apply -f THIS; after kubectl delete the same again goes on.\n# Written by: {}\n{}",
                  s.made_by, several ? key_words(s) : "");
  text += fmt::format(
      "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata:\n  name: {0}\nspec:\n"
      "  network: {{enableDNSHostnames: true, subdomain: {0}}}\n"
      "  successPolicy: {{operator: All, targetReplicatedJobs: [leader]}}\n"
      "  failurePolicy:\n    maxRestarts: 10\n    rules:\n"
      "    - name: hopeless\n      action: FailJobSet\n      targetReplicatedJobs: [leader]\n"
      "      onJobFailureReasons: [PodFailurePolicy]\n"
      "      onJobFailureMessagePatterns: [\"exit code ({1}) \"]\n"
      "    - name: stopped\n      action: RestartJobSetAndIgnoreMaxRestarts\n      targetReplicatedJobs: [leader]\n"
      "      onJobFailureReasons: [PodFailurePolicy]\n"
      "      onJobFailureMessagePatterns: [\"exit code ({2}) \"]\n"
      "  replicatedJobs:\n",
      s.name, regex_of(kHopeless), regex_of(kStopped));
  if (several) text += indented(replicated("worker", "", workers_job(s)), 2);
  const std::string after = several ? "  dependsOn: [{name: worker, status: Ready}]\n" : "";
  return text + indented(replicated("leader", after, leader_job(s)), 2);
}

std::string mpijob_yaml(const LaunchSpec& s) {
  const auto replica = [&](const char* name, int64_t replicas, const char* policy, const std::string& container) {
    std::string spec = pod(s, container, false);
    spec = spec.substr(spec.find('\n') + 1);  // the operator sets the pods' restartPolicy
    return fmt::format("{}:\n  replicas: {}\n  restartPolicy: {}\n  template:\n    spec:\n{}", name, replicas, policy,
                       indented(spec, 6));
  };
  std::string text = fmt::format(
      "# kubectl apply -f THIS; after kubectl delete the same again goes on.\n# Written by: {}\n", s.made_by);
  text += fmt::format(
      "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata:\n  name: {}\nspec:\n  slotsPerWorker: {}\n"
      "  runLauncherAsWorker: true  # the first rank runs beside the supervisor\n"
      "  launcherCreationPolicy: WaitForWorkersReady\n  mpiImplementation: OpenMPI\n"
      "  runPolicy:\n    cleanPodPolicy: Running\n    backoffLimit: 10  # MPIJobs do not tell exit statuses apart\n"
      "  mpiReplicaSpecs:\n",
      s.name, s.slots());
  const std::string command =
      "command: " + word_list(supervise_words(s, s.nodes > 1 ? "/etc/mpi/hostfile" : "")) + "\n";
  text += indented(replica("Launcher", 1, "OnFailure", command), 4);
  const std::string sshd =
      "command: [\"/usr/sbin/sshd\", \"-De\"]\nreadinessProbe: {tcpSocket: {port: 22}, periodSeconds: 2}\n";
  if (s.nodes > 1) text += indented(replica("Worker", s.nodes - 1, "OnFailure", sshd), 4);
  return text;
}

}  // namespace weft
