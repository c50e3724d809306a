/**
 * Linux' counters of this machine's energy: RAPL's counters of Intel and AMD processors (/sys/class/powercap), and the INA3221 power
 * monitors on the rails of a Jetson.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { PowerIntegral, type EnergyCounter, type FoundCounters } from './energy-counter.js';

/** The files that counters are read from. Both functions throw where there is nothing to read. */
export interface EnergyFiles {
  names(directory: string): readonly string[];
  text(path: string): string;
}

export const SYSTEM_FILES: EnergyFiles = {
  names: (directory) => readdirSync(directory),
  text: (path) => readFileSync(path, 'utf8'),
};

const POWERCAP = '/sys/class/powercap';
/** A package, or a domain of one. The domains "core" and "uncore" lie within the package; "psys" contains it, and few machines have it. */
const RAPL_DOMAIN = /^intel-rapl:\d+(:\d+)?$/;
const COUNTED_DOMAIN = /^(package-\d+(-die-\d+)?|dram)$/;
const J_OF_UJ = 1e-6;

const MONITORS = ['/sys/bus/i2c/drivers/ina3221', '/sys/bus/i2c/drivers/ina3221x'] as const;
const DEVICE = /^\d+-[0-9a-f]{4}$/;
/** Rails of what the whole module takes; the other rails of such a board lie behind it. */
const INPUT_RAIL = /^(VDD_IN|POM_5V_IN|5V_IN)$/;
const UNCONNECTED_RAIL = 'NC';
const W_OF_MW = 1e-3;
const WATTS_OF_MV_MA = 1e-6;

/** Finds the counters of this machine's processors and rails. */
export function findLinuxCounters(files: EnergyFiles): FoundCounters {
  const found = [raplCounters(files), railCounters(files)];
  return {
    counters: found.flatMap(({ counters }) => counters),
    problems: found.flatMap(({ problems }) => problems),
  };
}

/** All packages and memories, or none: a part of them would be taken for the whole. */
function raplCounters(files: EnergyFiles): FoundCounters {
  const domains = namesIn(files, POWERCAP).filter((name) => RAPL_DOMAIN.test(name));
  try {
    const counted = domains
      .map((domain) => ({ domain, directory: `${POWERCAP}/${domain}` }))
      .map((one) => ({ ...one, name: files.text(`${one.directory}/name`).trim() }))
      .filter(({ name }) => COUNTED_DOMAIN.test(name));
    const counters = counted.map(({ domain, directory, name }) => {
      // Each package has a memory of its own; its number stands in the name of the directory.
      const socket = name === 'dram' ? `dram-${domain.split(':')[1] ?? ''}` : name;
      return new RaplCounter(socket, directory, files);
    });
    return { counters, problems: [] };
  } catch (thrown) {
    return { counters: [], problems: [`RAPL cannot be read (${reasonOf(thrown)}); Linux lets root alone read it`] };
  }
}

/** A counter of microjoules that begins again at 0 beyond its range. */
class RaplCounter implements EnergyCounter {
  joules = 0;
  readonly #rangeUj: number;
  #lastUj: number;

  constructor(
    readonly name: string,
    private readonly directory: string,
    private readonly files: EnergyFiles,
  ) {
    this.#rangeUj = numberIn(files, `${directory}/max_energy_range_uj`);
    this.#lastUj = this.#read();
  }

  /** The counter must not pass its range twice between samples; at 200 W that takes more than five minutes. */
  sample(): void {
    const uj = this.#read();
    const passed = uj >= this.#lastUj ? uj - this.#lastUj : this.#rangeUj - this.#lastUj + uj;
    this.joules += passed * J_OF_UJ;
    this.#lastUj = uj;
  }

  #read(): number {
    return numberIn(this.files, `${this.directory}/energy_uj`);
  }
}

interface Rail {
  readonly name: string;
  readonly watts: () => number;
}

function railCounters(files: EnergyFiles): FoundCounters {
  try {
    const rails = MONITORS.flatMap((driver) =>
      namesIn(files, driver)
        .filter((name) => DEVICE.test(name))
        .flatMap((device) => railsOf(files, `${driver}/${device}`)),
    );
    const input = rails.filter(({ name }) => INPUT_RAIL.test(name));
    const used = input.length > 0 ? input : rails;
    const counters = used.map(({ name, watts }) => new PowerIntegral(name, watts));
    return { counters, problems: [] };
  } catch (thrown) {
    return { counters: [], problems: [`the power monitors INA3221 cannot be read (${reasonOf(thrown)})`] };
  }
}

function railsOf(files: EnergyFiles, device: string): Rail[] {
  const monitors = namesIn(files, `${device}/hwmon`).map((name) => `${device}/hwmon/${name}`);
  const older = namesIn(files, device).filter((name) => name.startsWith('iio:device'));
  return [
    ...monitors.flatMap((directory) => labelledRails(files, directory)),
    ...older.flatMap((name) => namedRails(files, `${device}/${name}`)),
  ];
}

/** Linux's own driver (Jetson Linux 34 and later): inN_label, inN_input in millivolts, currN_input in milliamperes; in7 is a sum of other quantities. */
function labelledRails(files: EnergyFiles, directory: string): Rail[] {
  return namesIn(files, directory)
    .flatMap((file) => /^in([123])_label$/.exec(file)?.[1] ?? [])
    .map((channel) => ({
      name: files.text(`${directory}/in${channel}_label`).trim(),
      watts: () =>
        numberIn(files, `${directory}/in${channel}_input`) *
        numberIn(files, `${directory}/curr${channel}_input`) *
        WATTS_OF_MV_MA,
    }))
    .filter(({ name }) => name !== UNCONNECTED_RAIL);
}

/** The driver of older Jetsons (Jetson Linux 32): rail_name_N, in_powerN_input in milliwatts. */
function namedRails(files: EnergyFiles, directory: string): Rail[] {
  return namesIn(files, directory)
    .flatMap((file) => /^rail_name_(\d)$/.exec(file)?.[1] ?? [])
    .map((channel) => ({
      name: files.text(`${directory}/rail_name_${channel}`).trim(),
      watts: () => numberIn(files, `${directory}/in_power${channel}_input`) * W_OF_MW,
    }))
    .filter(({ name }) => name !== UNCONNECTED_RAIL);
}

/** In order of name; none where there is no such directory. */
function namesIn(files: EnergyFiles, directory: string): string[] {
  try {
    return [...files.names(directory)].sort();
  } catch {
    return [];
  }
}

function numberIn(files: EnergyFiles, path: string): number {
  const text = files.text(path).trim();
  if (!/^\d+$/.test(text)) throw new Error(`${path} holds "${text}", which is no number`);
  return Number(text);
}

function reasonOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}
