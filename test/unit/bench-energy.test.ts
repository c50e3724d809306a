/** Measured energy beside benchmarks: counters from files of fixtures, a `nvidia-smi` that is a script, and the line of a run. */
import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { EnergyMeter, energyText } from '../../bench/energy/energy-meter.js';
import { GpuPower } from '../../bench/energy/gpu-power.js';
import type { EnergyFiles } from '../../bench/energy/linux-counters.js';
import { MeasuredRun } from '../../bench/history/measured-run.js';
import { acceptRecord } from '../../bench/history/record-run.js';
import { parseRunLines } from '../../bench/history/run-line.js';
import { createProgram } from '../../cli/client/run-command-line.js';

const NO_GPUS = { counters: [], close: () => undefined };
const RAPL = '/sys/class/powercap';
const MONITOR = '/sys/bus/i2c/drivers/ina3221/1-0040';
const HWMON = `${MONITOR}/hwmon/hwmon1`;

/** Files by path; an Error is thrown by whoever reads it. */
type Fixture = Record<string, string | Error>;

function filesOf(fixture: Fixture): EnergyFiles {
  return {
    names: (directory) => {
      const within = Object.keys(fixture).filter((path) => path.startsWith(`${directory}/`));
      if (within.length === 0) throw new Error(`ENOENT: ${directory}`);
      return [...new Set(within.map((path) => path.slice(directory.length + 1).split('/')[0] ?? ''))];
    },
    text: (path) => {
      const content = fixture[path];
      if (content instanceof Error) throw content;
      if (content === undefined) throw new Error(`ENOENT: ${path}`);
      return content;
    },
  };
}

function domain(name: string, label: string, energyUj: number, rangeUj = 1_000_000_000): Fixture {
  const directory = `${RAPL}/${name}`;
  return {
    [`${directory}/name`]: `${label}\n`,
    [`${directory}/energy_uj`]: `${energyUj}\n`,
    [`${directory}/max_energy_range_uj`]: `${rangeUj}\n`,
  };
}

function rail(channel: number, label: string, millivolts: number, milliamperes: number): Fixture {
  return {
    [`${HWMON}/in${channel}_label`]: `${label}\n`,
    [`${HWMON}/in${channel}_input`]: `${millivolts}\n`,
    [`${HWMON}/curr${channel}_input`]: `${milliamperes}\n`,
  };
}

/** A clock whose timers never fire by themselves. */
class StoppedClock {
  ms = 0;
  sample: () => void = () => undefined;
  isCancelled = false;
  nowMs(): number {
    return this.ms;
  }
  every(_: number, run: () => void): { cancel(): void; unref(): void } {
    this.sample = run;
    return { cancel: () => (this.isCancelled = true), unref: () => undefined };
  }
}

describe('the energy of RAPL', () => {
  const energy = (name: string): string => `${RAPL}/${name}/energy_uj`;

  it('adds all packages and their memories, and no domain twice', () => {
    const fixture: Fixture = {
      ...domain('intel-rapl:0', 'package-0', 5_000_000),
      ...domain('intel-rapl:0:0', 'core', 1_000_000),
      ...domain('intel-rapl:0:1', 'dram', 2_000_000),
      ...domain('intel-rapl:1', 'package-1', 7_000_000),
      ...domain('intel-rapl:1:0', 'dram', 3_000_000),
      ...domain('intel-rapl:2', 'psys', 9_000_000),
      ...domain('intel-rapl-mmio:0', 'package-0', 5_000_000),
      [`${RAPL}/intel-rapl/enabled`]: '1\n',
    };
    const clock = new StoppedClock();
    const meter = new EnergyMeter(clock, filesOf(fixture), NO_GPUS);
    const moved = {
      'intel-rapl:0': 15,
      'intel-rapl:0:0': 6,
      'intel-rapl:0:1': 4,
      'intel-rapl:1': 8,
      'intel-rapl:2': 99,
    };
    for (const [name, joules] of Object.entries(moved)) fixture[energy(name)] = String(joules * 1_000_000);
    clock.ms = 4000;
    const measured = meter.read();
    assert.deepEqual(
      measured?.counters.map(({ name, joules }) => [name, Math.round(joules * 1e6) / 1e6]),
      [
        ['package-0', 10],
        ['dram-0', 2],
        ['package-1', 1],
        ['dram-1', 0],
      ],
    );
    assert.ok(Math.abs((measured?.joules ?? 0) - 13) < 1e-9);
    assert.deepEqual([measured?.seconds, measured?.missing], [4, []]);
    assert.match(
      energyText(measured ?? null, meter.reason),
      /^measured energy: 13\.0 J in 4\.0 s \(package-0 10\.0 J, /,
    );
  });

  it('goes on where a counter begins again at 0, as often as it is sampled between', () => {
    const fixture = domain('intel-rapl:0', 'package-0', 900, 1000);
    const clock = new StoppedClock();
    const meter = new EnergyMeter(clock, filesOf(fixture), NO_GPUS);
    for (const uj of [100, 950, 200]) {
      fixture[energy('intel-rapl:0')] = String(uj);
      clock.sample();
    }
    assert.ok(Math.abs((meter.joules() ?? 0) - (200 + 850 + 250) * 1e-6) < 1e-12);
    meter.close();
    assert.ok(clock.isCancelled);
  });

  it('is not measured where one package cannot be read, and the reason says who may', () => {
    const denied = new Error(`EACCES: permission denied, open '${energy('intel-rapl:1')}'`);
    const fixture: Fixture = {
      ...domain('intel-rapl:0', 'package-0', 1),
      ...domain('intel-rapl:1', 'package-1', 1),
      [energy('intel-rapl:1')]: denied,
    };
    const meter = new EnergyMeter(new StoppedClock(), filesOf(fixture), NO_GPUS);
    assert.equal(meter.read(), null);
    assert.match(energyText(null, meter.reason), /^energy: not measured: RAPL .*EACCES.*intel-rapl:1.* root/);
  });

  it('is not measured where there is none, or where it holds no number', () => {
    const nothing = new EnergyMeter(new StoppedClock(), filesOf({}), NO_GPUS);
    assert.deepEqual([nothing.read(), nothing.joules()], [null, null]);
    assert.equal(energyText(null, nothing.reason), 'energy: not measured: no counter');
    const odd = { ...domain('intel-rapl:0', 'package-0', 1), [energy('intel-rapl:0')]: 'none\n' };
    assert.match(new EnergyMeter(new StoppedClock(), filesOf(odd), NO_GPUS).reason, /holds "none"/);
  });

  it('ends being measured where it can no longer be read', () => {
    const fixture: Fixture = domain('intel-rapl:0', 'package-0', 1);
    const clock = new StoppedClock();
    const meter = new EnergyMeter(clock, filesOf(fixture), NO_GPUS);
    assert.ok(meter.read() !== null);
    fixture[energy('intel-rapl:0')] = new Error('EIO');
    clock.sample();
    fixture[energy('intel-rapl:0')] = '5';
    assert.deepEqual([meter.read(), meter.reason], [null, 'EIO']);
  });
});

describe("the energy of a Jetson's rails", () => {
  it('is that of the input rail alone, from voltage and current over time', () => {
    const fixture: Fixture = {
      ...rail(1, 'VDD_IN', 5000, 2000),
      ...rail(2, 'VDD_CPU_GPU_CV', 5000, 1000),
      ...rail(3, 'VDD_SOC', 5000, 500),
      [`${HWMON}/in7_label`]: 'sum of shunt voltages\n',
      [`${MONITOR}/name`]: 'ina3221\n',
      '/sys/bus/i2c/drivers/ina3221/bind': '',
    };
    const clock = new StoppedClock();
    const meter = new EnergyMeter(clock, filesOf(fixture), NO_GPUS);
    const sampleAt = (ms: number): void => {
      clock.ms = ms;
      clock.sample();
    };
    sampleAt(1000);
    fixture[`${HWMON}/curr1_input`] = '4000';
    sampleAt(1100);
    clock.ms = 2000;
    const measured = meter.read();
    assert.deepEqual(
      measured?.counters.map(({ name }) => name),
      ['VDD_IN'],
    );
    assert.ok(Math.abs((measured?.joules ?? 0) - (10 + 1.5 + 18)) < 1e-9, String(measured?.joules));
  });

  it('is the sum of all connected rails where no rail is the input', () => {
    const fixture = {
      ...rail(1, 'VDD_GPU_SOC', 19_000, 500),
      ...rail(2, 'NC', 1, 1),
      ...rail(3, 'VIN_SYS_5V0', 5000, 100),
    };
    const clock = new StoppedClock();
    const meter = new EnergyMeter(clock, filesOf(fixture), NO_GPUS);
    clock.ms = 2000;
    assert.ok(Math.abs((meter.joules() ?? 0) - 2 * (9.5 + 0.5)) < 1e-9);
  });

  it('comes from milliwatts with the older driver', () => {
    const directory = '/sys/bus/i2c/drivers/ina3221x/6-0040/iio:device0';
    const fixture = {
      [`${directory}/rail_name_0`]: 'POM_5V_IN\n',
      [`${directory}/in_power0_input`]: '3500\n',
      [`${directory}/rail_name_1`]: 'POM_5V_GPU\n',
      [`${directory}/in_power1_input`]: '900\n',
    };
    const clock = new StoppedClock();
    const meter = new EnergyMeter(clock, filesOf(fixture), NO_GPUS);
    clock.ms = 2000;
    assert.deepEqual([meter.joules(), meter.read()?.counters.length], [7, 1]);
  });
});

describe('the energy of GPUs', () => {
  let directory: string;
  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'odmoe-energy-'));
  });
  afterEach(() => rmSync(directory, { recursive: true }));

  /** A program that prints `first` when it is asked once, and `then` again and again. */
  function program(first: string, then: string): string {
    const path = join(directory, 'nvidia-smi');
    const loop = `while true; do printf '${then}' || exit 0; sleep 0.02; done`;
    writeFileSync(path, `#!/bin/sh\ncase "$*" in *--loop-ms=*) ${loop} ;; *) printf '${first}' ;; esac\n`);
    chmodSync(path, 0o755);
    return path;
  }

  it('comes from the power that nvidia-smi goes on to print, for each GPU that tells it', async () => {
    const gpus = GpuPower.open(program('0, 50.00\\n1, [N/A]\\n2, 10.5\\n', '0, 80.00\\n1, [N/A]\\n2, 10.5\\n'));
    const clock = new StoppedClock();
    const meter = new EnergyMeter(clock, filesOf({}), gpus);
    try {
      assert.deepEqual(
        meter.read()?.counters.map(({ name }) => name),
        ['gpu-0', 'gpu-2'],
      );
      const watts = (): number => {
        const before = meter.read()?.counters[0]?.joules ?? 0;
        clock.ms += 1000;
        return (meter.read()?.counters[0]?.joules ?? 0) - before;
      };
      const deadline = Date.now() + 10_000;
      while (watts() !== 80 && Date.now() < deadline) await new Promise((resolve) => setTimeout(resolve, 20));
      assert.equal(watts(), 80);
    } finally {
      meter.close();
    }
    const ended = Date.now() + 10_000;
    while (meter.read() !== null && Date.now() < ended) await new Promise((resolve) => setTimeout(resolve, 20));
    assert.match(meter.reason, /has ended/);
  });

  it('is not measured without nvidia-smi, or where it knows no GPU', () => {
    for (const path of [join(directory, 'none'), program('No devices were found\\n', '')]) {
      const gpus = GpuPower.open(path);
      assert.deepEqual(gpus.counters, []);
      gpus.close();
    }
  });
});

describe('a measured run', () => {
  it('has its energy below its table and in its line, and neither where nothing tells it', async () => {
    const root = mkdtempSync(join(tmpdir(), 'odmoe-energy-'));
    const run = async (fixture: Fixture): Promise<string> => {
      const printed: string[] = [];
      const clock = new StoppedClock();
      const open = (): EnergyMeter => new EnergyMeter(clock, filesOf(fixture), NO_GPUS);
      const measured = new MeasuredRun((text) => printed.push(text), open);
      const program = createProgram('odmoe bench');
      program.command('sample').action(async () => {
        await measured.withEnergy(async () => {
          clock.ms = 2000;
          fixture[`${RAPL}/intel-rapl:0/energy_uj`] = '6000000';
        });
        assert.ok(clock.isCancelled || measured.energy === null, 'the meter is closed');
        measured.print({ hops: 1 }, false, () => 'a table\n');
      });
      acceptRecord(program, measured, { root, args: ['bench', 'sample', '--record'] });
      await program.parseAsync(['sample', '--record'], { from: 'user' });
      return printed.join('');
    };
    try {
      const told = await run(domain('intel-rapl:0', 'package-0', 1_000_000));
      assert.equal(told, 'a table\n\nmeasured energy: 5.0 J in 2.0 s (package-0 5.0 J)\n');
      assert.equal(await run({}), 'a table\n\nenergy: not measured: no counter\n');
      const lines = parseRunLines(readFileSync(join(root, 'bench', 'history', 'sample.jsonl'), 'utf8'), 'sample.jsonl');
      const energy = { joules: 5, seconds: 2, counters: [{ name: 'package-0', joules: 5 }], missing: [] };
      assert.deepEqual(
        lines.map((line) => line.energy),
        [energy, undefined],
      );
    } finally {
      rmSync(root, { recursive: true });
    }
  });
});
