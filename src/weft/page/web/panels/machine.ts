// How is the machine?
import { Num } from "../api";
import { fact, h, put, Table, value } from "../dom";
import { format } from "../format";
import { Panel } from "../state";

export function machine_panel(): Panel {
  const where = h("p", { class: "why" }), facts = h("dl", { class: "facts" });
  const disks = new Table("Disks", [{ name: "Folder" }, { name: "Free", numeric: true }, { name: "Of", numeric: true }]);
  const traffic = new Table("Disk and network traffic", [{ name: "Device" }, { name: "Read, received", numeric: true }, { name: "Written, sent", numeric: true }, { name: "Errors", numeric: true }, { name: "Dropped", numeric: true }]);
  const tables = h("div", { class: "columns" }, h("div", {}, h("h3", {}, "Room"), disks.element), h("div", {}, h("h3", {}, "Disk and network"), traffic.element));
  return {
    id: "machine", title: "Machine", body: h("div", {}, where, facts, tables),
    update(s) {
      const m = s.machine;
      if (!m) return false;
      put(where, `${m.host}, where this page comes from`, s.run && s.run.host && s.run.host !== m.host && `; the run is on ${s.run.host}`);
      const used = m.memory && m.memory.total_bytes !== null && m.memory.available_bytes !== null ? m.memory.total_bytes - m.memory.available_bytes : null;
      put(facts, fact("Cores busy", value("machine.busy", m.busy, "share"), m.cores !== null && (m.usable_cores === m.cores ? `of ${m.cores} cores` : `of ${m.cores} cores, ${m.usable_cores} usable`)),
        fact("Load", value("machine.load", m.load[0]), `5 min ${format(m.load[1])}, 15 min ${format(m.load[2])}`),
        m.memory && fact("Memory used", value("machine.memory_used", used, "bytes"), `of ${format(m.memory.total_bytes, "bytes")}`),
        m.memory && m.memory.swap_used_bytes ? fact("Swap used", value("machine.swap", m.memory.swap_used_bytes, "bytes")) : null,
        m.clocks && fact("Clock", value("machine.clock", hertz(m.clocks.mhz), "Hz"), m.clocks.max_mhz !== null && `at most ${format(hertz(m.clocks.max_mhz), "Hz")}`),
        ...m.energy.map((e) => fact(`Power, ${e.name}`, value(`machine.watts.${e.name}`, e.watts, "W"))),
        ...hottest(m.temperatures).map((t) => fact("Hottest", value("machine.celsius", t.celsius, "°C"), t.name)),
        ...m.pressure.map((p) => fact(`Waiting for ${p.name}`, value(`machine.pressure.${p.name}`, p.some_10s === null ? null : p.some_10s / 100, "share"), "of the last 10 s")));
      const mine = m.disks.filter((d, i) => s.shown.includes(d.run) && m.disks.findIndex((x) => x.path === d.path && s.shown.includes(x.run)) === i);
      disks.rows(mine.map((d) => [d.path, value(`disk.${d.run}.free`, d.free_bytes, "bytes"), value(`disk.${d.run}.total`, d.total_bytes, "bytes")]), mine);
      traffic.rows([...m.devices.map((d) => [d.name, value(`device.${d.name}.read`, d.read_bytes_per_s, "bytes/s"), value(`device.${d.name}.written`, d.written_bytes_per_s, "bytes/s"), "", ""]),
        ...m.network.map((n) => [n.name, value(`network.${n.name}.received`, n.received_bytes_per_s, "bytes/s"), value(`network.${n.name}.sent`, n.sent_bytes_per_s, "bytes/s"),
          value(`network.${n.name}.errors`, n.errors, "count"), value(`network.${n.name}.dropped`, n.dropped, "count")])], [m.devices, m.network]);
      return true;
    },
  };
}

const hertz = (mhz: Num): Num => (mhz === null ? null : mhz * 1e6);

function hottest<T extends { celsius: Num }>(all: T[]): T[] {
  return [...all].sort((a, b) => (b.celsius ?? -Infinity) - (a.celsius ?? -Infinity)).slice(0, 1);
}
