import { formatByteSize } from '../../shared/config/byte-size.js';
import { snakeCaseKeys } from '../../cli/output/snake-case.js';
import { tableLines } from '../../cli/output/table.js';
import type { ClusterMemory, DeviceMemory } from './device-memory.js';
import type { SimulationResult } from './simulate-cluster.js';

/** Everything about a simulated cluster that is reported. */
export interface SimulationReport {
  profile: string;
  model: string;
  prompts: number;
  workers: number;
  result: SimulationResult;
  memory: ClusterMemory;
  /** Of the profile's machine that holds the whole model. */
  cachedTokensPerS: number;
}

interface LayerStalls {
  layer: number;
  /** Mean over all passes. */
  meanMs: number;
  /** Share of passes that stalled there. */
  share: number;
}

function layerStalls({ recorder }: SimulationResult): LayerStalls[] {
  const passes = Math.max(1, recorder.passes.length);
  return recorder.stallMs.map((stallMs, layer) => ({
    layer,
    meanMs: stallMs / passes,
    share: (recorder.stalls[layer] ?? 0) / passes,
  }));
}

/** Milliseconds that main waits for loads, a token after the first. */
function stallMsPerToken({ recorder, answers }: SimulationResult): number {
  const tokens = answers.reduce((sum, answer) => sum + answer.tokens - 1, 0);
  return tokens === 0 ? 0 : recorder.stallMs.reduce((sum, ms) => sum + ms, 0) / tokens;
}

/** One plain object, keys in snake case. */
export function simulationJson(report: SimulationReport): unknown {
  const { result, memory, cachedTokensPerS } = report;
  const { recorder } = result;
  return snakeCaseKeys({
    ...{ profile: report.profile, model: report.model, prompts: report.prompts },
    ...{ workers: report.workers },
    tokens: result.answers.reduce((sum, answer) => sum + answer.tokens, 0),
    ...{ ttftMs: result.ttftMs, tpotMs: result.tpotMs },
    ...{ decodeTokensPerS: result.decodeTokensPerS, outputTokensPerS: result.outputTokensPerS },
    ...{ cachedTokensPerS, decodeOverCached: result.decodeTokensPerS / cachedTokensPerS },
    stallMsPerToken: stallMsPerToken(result),
    stallsByLayer: layerStalls(result),
    ...{ recall: result.recall, acceptance: result.acceptance },
    ...{ passes: recorder.passes.length, rowsPerPass: result.rowsPerPass, tokensPerPass: result.tokensPerPass },
    ...{ loads: recorder.loads, cancelledLoads: recorder.cancelledLoads, executions: recorder.executions },
    ...{ untoldExperts: recorder.missed, restarts: recorder.restarts },
    ...{ messages: recorder.messages, sentBytes: recorder.sentBytes },
    memory,
    events: result.events,
  });
}

/** Lines for people. */
export function simulationLines(report: SimulationReport): string[] {
  const { result, memory, cachedTokensPerS } = report;
  const tokens = result.answers.map((answer) => answer.tokens);
  // One token is prefill's: nothing was decoded.
  const decoded = (figure: string): string => (result.tpotMs === 0 ? '-' : figure);
  const figures: [string, string][] = [
    ['TTFT', `${result.ttftMs.toFixed(1)} ms`],
    ['TPOT', decoded(`${result.tpotMs.toFixed(2)} ms`)],
    ['decode', decoded(`${result.decodeTokensPerS.toFixed(3)} tokens/s`)],
    ['output', `${result.outputTokensPerS.toFixed(3)} tokens/s`],
    ['of a fully cached machine', decoded(`${(result.decodeTokensPerS / cachedTokensPerS).toFixed(3)}`)],
    ['waits for loads', `${stallMsPerToken(result).toFixed(2)} ms a token`],
    ['recall', result.recall === null ? '-' : result.recall.toFixed(4)],
    ['drafts accepted', result.acceptance === null ? '-' : result.acceptance.toFixed(4)],
    ['tokens a pass', decoded(`${result.tokensPerPass.toFixed(2)} of ${result.rowsPerPass.toFixed(2)} positions`)],
  ];
  const width = Math.max(...figures.map(([name]) => name.length));
  const title =
    `${report.model} on ${report.profile}: ${report.workers} workers, ` +
    `${report.prompts} prompts, up to ${Math.max(...tokens)} tokens each`;
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

export function memoryLines(memory: ClusterMemory): string[] {
  const row = (name: string, count: number, device: DeviceMemory | null): string[][] =>
    device === null
      ? []
      : [
          [
            ...[name, String(count), formatByteSize(device.usedBytes), formatByteSize(device.memoryBytes)],
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
