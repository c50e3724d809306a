/** A measured cluster as the text of an issue: hardware, model, speed and loads, and no name of a machine, a cluster or a person. */
import { formatBytes } from '../../shared/base/text/units.js';
import { arithmeticName } from '../../shared/settings/quality.js';
import type { Finished, NodeStatus, StatusReply } from '../../shared/wire/messages.js';

/** One answer, and what the cluster said of itself before and after it. */
export interface MeasuredAnswer {
  readonly before: Pick<StatusReply, 'nodes'>;
  readonly after: Pick<StatusReply, 'nodes' | 'placement' | 'arithmetic'>;
  readonly finished: Pick<Finished, 'timing' | 'sep'>;
  readonly promptTokens: number;
  readonly tokens: number;
}

/** Daemons of one role and one kind of hardware. */
export interface ReportedNodes {
  readonly role: 'main' | 'shadow' | 'worker';
  readonly count: number;
  readonly device: string;
  /** 0: no limit. */
  readonly memoryBudgetBytes: number;
  readonly slots: number;
}

export interface Datapoint {
  readonly release: string;
  readonly model: string;
  readonly arithmetic: string;
  readonly nodes: readonly ReportedNodes[];
  /** Workers of each group; empty: there is no placement. */
  readonly groups: readonly number[];
  readonly promptTokens: number;
  readonly tokens: number;
  readonly ttftMs: number;
  readonly decodeTokensPerS: number;
  readonly ioStallMs: number;
  /** null: there were no predictions. */
  readonly recall: number | null;
  /** Loads and executions of all workers for this answer, and the mean time of each since the worker's start. */
  readonly loads: number;
  readonly executions: number;
  readonly loadMsMean: number;
  readonly executeMsMean: number;
}

const ROLES = { ROLE_MAIN: 'main', ROLE_SHADOW: 'shadow', ROLE_WORKER: 'worker' } as const;
const ORDER = Object.values(ROLES);

function roleOf({ identity }: NodeStatus): ReportedNodes['role'] | null {
  return identity.role === 'ROLE_UNSPECIFIED' ? null : ROLES[identity.role];
}

function alike(nodes: readonly NodeStatus[]): ReportedNodes[] {
  const kinds = new Map<string, ReportedNodes>();
  for (const node of nodes) {
    const role = roleOf(node);
    if (role === null) continue;
    const device = node.deviceName === '' ? node.identity.device : node.deviceName;
    const kind = { role, device, memoryBudgetBytes: node.deviceMemoryBudgetBytes, slots: node.slots };
    const key = JSON.stringify(kind);
    kinds.set(key, { ...kind, count: (kinds.get(key)?.count ?? 0) + 1 });
  }
  return [...kinds.values()].sort((one, other) => ORDER.indexOf(one.role) - ORDER.indexOf(other.role));
}

function workersOf({ nodes }: Pick<StatusReply, 'nodes'>): NodeStatus[] {
  return nodes.filter((node) => roleOf(node) === 'worker');
}

function total(nodes: readonly NodeStatus[], of: (node: NodeStatus) => number): number {
  return nodes.reduce((sum, node) => sum + of(node), 0);
}

/** The growth of a counter over the workers that ran all the time; one that was started meanwhile counts from its start. */
function growth({ before, after }: MeasuredAnswer, of: (node: NodeStatus) => number): number {
  const earlier = new Map(workersOf(before).map((node) => [node.identity.bootId, of(node)]));
  return total(workersOf(after), (node) => of(node) - (earlier.get(node.identity.bootId) ?? 0));
}

function weightedMean(
  nodes: readonly NodeStatus[],
  of: (node: NodeStatus) => number,
  by: (node: NodeStatus) => number,
) {
  const weight = total(nodes, by);
  return weight === 0 ? 0 : total(nodes, (node) => of(node) * by(node)) / weight;
}

/** The figures of a measured answer. Pure. */
export function datapointOf(measured: MeasuredAnswer): Datapoint {
  const { after, finished, promptTokens, tokens } = measured;
  const main = after.nodes.find((node) => roleOf(node) === 'main');
  const workers = workersOf(after);
  const { timing, sep } = finished;
  return {
    release: main?.identity.release ?? '',
    model: main?.identity.modelName ?? '',
    arithmetic: arithmeticName(after.arithmetic),
    nodes: alike(after.nodes),
    groups: (after.placement?.groups ?? []).map((group) => group.workerIds.length),
    promptTokens,
    tokens,
    ttftMs: timing?.ttftMs ?? 0,
    decodeTokensPerS: timing?.decodeTokensPerS ?? 0,
    ioStallMs: timing?.ioStallMs ?? 0,
    recall: sep === null || sep.activated === 0 ? null : sep.predictedCorrectly / sep.activated,
    loads: growth(measured, (node) => node.loads),
    executions: growth(measured, (node) => node.executions),
    loadMsMean: weightedMean(
      workers,
      (node) => node.loadMsMean,
      (node) => node.loads,
    ),
    executeMsMean: weightedMean(
      workers,
      (node) => node.executeMsMean,
      (node) => node.executions,
    ),
  };
}

function nodeLine({ role, count, device, memoryBudgetBytes, slots }: ReportedNodes): string {
  const budget = memoryBudgetBytes === 0 ? 'no limit' : formatBytes(memoryBudgetBytes);
  return `| ${count} | ${role} | ${device.replaceAll('|', '/')} | ${budget} | ${role === 'worker' ? slots : ''} |`;
}

/** The text of an issue, in Markdown. Pure. */
export function datapointText(point: Datapoint): string {
  const { release, model, arithmetic, groups, promptTokens, tokens, ttftMs, decodeTokensPerS, recall } = point;
  return [
    `**Model** ${model}, arithmetic ${arithmetic}, odmoe ${release}`,
    '',
    '| boxes | role | device | memory budget | slots |',
    '| --- | --- | --- | --- | --- |',
    ...point.nodes.map(nodeLine),
    '',
    '| measured | |',
    '| --- | --- |',
    `| prompt, answer | ${promptTokens} and ${tokens} tokens |`,
    `| first token after | ${ttftMs.toFixed(0)} ms |`,
    `| then | ${decodeTokensPerS.toFixed(2)} tokens/s |`,
    `| waiting for loads | ${point.ioStallMs.toFixed(0)} ms |`,
    `| recall of predictions | ${recall === null ? 'no predictions' : recall.toFixed(4)} |`,
    `| workers in groups | ${groups.length === 0 ? 'no groups' : groups.join(' + ')} |`,
    `| loads | ${point.loads}, ${point.loadMsMean.toFixed(2)} ms each |`,
    `| executions | ${point.executions}, ${point.executeMsMean.toFixed(2)} ms each |`,
    '',
    '**Network, storage, and what is special** (please write: 1 GbE, NVMe, power mode ...)',
    '',
    '',
  ].join('\n');
}
