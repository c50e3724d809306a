import { formatByteSize } from '../../shared/base/text/byte-size.js';
import type { DeviceProfile } from '../../engine/emulation/device-profile.js';
import type { CacheUses, SimulationResult } from '../../simulator/simulate/simulation-result.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { tableLines } from './table.js';

/** Most device memory that one machine has used, and the memory of its device. */
export interface DeviceMemory {
  usedBytes: number;
  memoryBytes: number;
}

export interface ClusterMemory {
  main: DeviceMemory;
  /** Null: there is no shadow. */
  shadow: DeviceMemory | null;
  worker: DeviceMemory;
  workers: number;
  totalBytes: number;
}

/** All figures of a simulated cluster that are reported. */
export interface SimulationReport {
  profile: string;
  model: string;
  workers: number;
  /** Requests at a time. */
  requests: number;
  result: SimulationResult;
  memory: ClusterMemory;
  /** Speed of the profile's machine that holds the whole model; null: there is none. */
  cachedTokensPerS: number | null;
}

export function memoryOf(
  { memoryBytes }: SimulationResult,
  { devices }: DeviceProfile,
  workers: number,
): ClusterMemory {
  const { main, shadow, worker, total } = memoryBytes;
  return {
    main: { usedBytes: main, memoryBytes: devices.main.memoryBytes },
    shadow: shadow === null ? null : { usedBytes: shadow, memoryBytes: devices.shadow?.memoryBytes ?? 0 },
    worker: { usedBytes: worker, memoryBytes: devices.worker.memoryBytes },
    workers,
    totalBytes: total,
  };
}

interface LayerStalls {
  layer: number;
  /** Mean stall over all passes. */
  meanMs: number;
  /** Share of passes that stalled at this layer. */
  share: number;
}

function layerStalls({ timing }: SimulationResult): LayerStalls[] {
  const passes = Math.max(1, timing.passes.length);
  return timing.stallMs.map((stallMs, layer) => ({
    layer,
    meanMs: stallMs / passes,
    share: (timing.stalls[layer] ?? 0) / passes,
  }));
}

/** Milliseconds that main waits for loads, per token after the first. */
function stallMsPerToken({ timing, answers }: SimulationResult): number {
  const tokens = answers.reduce((sum, answer) => sum + answer.tokens - 1, 0);
  return tokens === 0 ? 0 : timing.stallMs.reduce((sum, ms) => sum + ms, 0) / tokens;
}

/** A plain object with keys in snake case. */
export function simulationJson(report: SimulationReport): unknown {
  const { result, memory, cachedTokensPerS } = report;
  const { timing } = result;
  return snakeCaseKeys({
    profile: report.profile,
    model: report.model,
    prompts: result.answers.length,
    workers: report.workers,
    requests: report.requests,
    tokens: result.answers.reduce((sum, answer) => sum + answer.tokens, 0),
    ttftMs: result.ttftMs,
    tpotMs: result.tpotMs,
    decodeTokensPerS: result.decodeTokensPerS,
    outputTokensPerS: result.outputTokensPerS,
    cachedTokensPerS,
    decodeOverCached: cachedTokensPerS && result.decodeTokensPerS / cachedTokensPerS,
    stallMsPerToken: stallMsPerToken(result),
    stallsByLayer: layerStalls(result),
    recall: result.recall,
    acceptance: result.acceptance,
    passes: timing.passes.length,
    rowsPerPass: result.rowsPerPass,
    tokensPerPass: result.tokensPerPass,
    loads: result.loads,
    reloads: result.reloads,
    evictions: result.evictions,
    executions: result.executions,
    cache: result.cache,
    restarts: timing.restarts,
    messages: timing.messages,
    sentBytes: timing.sentBytes,
    memory,
    events: result.events,
  });
}

function cacheLine({ full, partial, misses }: CacheUses): string {
  return `${full} whole, ${partial} in part or compressed, ${misses} missed`;
}

/** Lines for people. */
export function simulationLines(report: SimulationReport): string[] {
  const { result, memory, cachedTokensPerS } = report;
  const tokens = result.answers.map((answer) => answer.tokens);
  // An answer of one token comes from prefill alone: nothing was decoded.
  const decoded = (figure: string): string => (result.tpotMs === 0 ? '-' : figure);
  const figures: [string, string][] = [
    ['TTFT', `${result.ttftMs.toFixed(1)} ms`],
    ['TPOT', decoded(`${result.tpotMs.toFixed(2)} ms`)],
    ['decode', decoded(`${result.decodeTokensPerS.toFixed(3)} tokens/s`)],
    ['output', `${result.outputTokensPerS.toFixed(3)} tokens/s`],
    ...(cachedTokensPerS === null
      ? []
      : ([['of a fully cached machine', decoded((result.decodeTokensPerS / cachedTokensPerS).toFixed(3))]] satisfies [
          string,
          string,
        ][])),
    ['waits for loads', `${stallMsPerToken(result).toFixed(2)} ms a token`],
    ['recall', result.recall === null ? '-' : result.recall.toFixed(4)],
    ['drafts accepted', result.acceptance === null ? '-' : result.acceptance.toFixed(4)],
    ...(result.cache === null ? [] : [['cache uses', cacheLine(result.cache)] satisfies [string, string]]),
    ['tokens a pass', decoded(`${result.tokensPerPass.toFixed(2)} of ${result.rowsPerPass.toFixed(2)} positions`)],
  ];
  const width = Math.max(...figures.map(([name]) => name.length));
  const title =
    `${report.model} on ${report.profile}: ${report.workers} workers, ` +
    `${tokens.length} prompts, ${report.requests} at a time, up to ${Math.max(...tokens)} tokens each`;
  return [
    title,
    '',
    ...figures.map(([name, value]) => `${name.padEnd(width)}  ${value}`),
    '',
    ...memoryLines(memory),
    '',
    ...stallLines(layerStalls(result)),
  ];
}

function memoryLines(memory: ClusterMemory): string[] {
  const row = (name: string, count: number, device: DeviceMemory | null): string[][] =>
    device === null
      ? []
      : [
          [
            name,
            String(count),
            formatByteSize(device.usedBytes),
            formatByteSize(device.memoryBytes),
            device.usedBytes <= device.memoryBytes ? 'fits' : 'TOO LITTLE',
          ],
        ];
  return tableLines(
    [
      { title: 'device memory', align: 'left' },
      { title: 'count', align: 'right' },
      { title: 'each', align: 'right' },
      { title: 'has', align: 'right' },
      { title: '', align: 'left' },
    ],
    [
      ...row('main', 1, memory.main),
      ...row('shadow', 1, memory.shadow),
      ...row('worker', memory.workers, memory.worker),
      ['in all', '', formatByteSize(memory.totalBytes), '', ''],
    ],
  );
}

function stallLines(stalls: readonly LayerStalls[]): string[] {
  return tableLines(
    [
      { title: 'layer', align: 'right' },
      { title: 'mean wait', align: 'right' },
      { title: 'passes that wait', align: 'right' },
    ],
    stalls.map(({ layer, meanMs, share }) => [
      String(layer + 1),
      `${meanMs.toFixed(2)} ms`,
      `${(100 * share).toFixed(1)} %`,
    ]),
  );
}
