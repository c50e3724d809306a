import { drainWords, othersLackBytes } from '../../shared/decisions/draining/drain-state.js';
import { servingState } from '../../shared/decisions/diagnosis/serving-state.js';
import { arithmeticName, isExact } from '../../shared/settings/quality.js';
import { countKept } from '../../shared/decisions/placement/kept-experts.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { naturalOrder } from '../../shared/base/text/natural-order.js';
import { printableLine } from '../../shared/base/text/printable-text.js';
import { formatBytes, formatDuration } from '../../shared/base/text/units.js';
import type { DrainedNode, NodeStatus, StatusReply } from '../../shared/wire/messages.js';
import { nodeJson, shortRole } from './node-json.js';
import { detailLines, type EarlierStatus, fetchLines, perSecond, roundTripTo } from './status-details.js';
import { tableLines, type TableColumn } from './table.js';
import { trustLines } from './trust-report.js';

export type { EarlierStatus } from './status-details.js';

/** Most columns of a status without details. */
const WIDTH = 80;

const NODE_COLUMNS: readonly TableColumn[] = [
  { title: 'node', align: 'left' },
  { title: 'role', align: 'left' },
  { title: 'up', align: 'right' },
  { title: 'device memory', align: 'right' },
  { title: 'round trip', align: 'right' },
];
/** Columns besides the node's id, which takes what is left. */
const NODE_WIDTH = WIDTH - 52;

export interface StatusOptions {
  /** An earlier status, for rates; null: none. */
  readonly earlier: EarlierStatus | null;
  /** True: with all tables of nodes, workers, caches and links. */
  readonly verbose: boolean;
}

/** Whether the cluster serves, its problems and its nodes, for people. Without `verbose` no line of our own is wider than 80 columns. */
export function statusLines(reply: StatusReply, options: StatusOptions): string[] {
  const status = { ...reply, nodes: inOrder(reply.nodes) };
  return [
    servingLine(status),
    ...problemLines(status),
    ...headLines(status, options.earlier),
    ...drainLines(status),
    ...fetchLines(status),
    '',
    ...nodeLines(status),
    ...(options.verbose ? detailLines(status, options.earlier) : []),
  ];
}

/** Main, then shadow, then workers, as people count. */
function inOrder(nodes: readonly NodeStatus[]): NodeStatus[] {
  const place = ({ identity }: NodeStatus): number => ROLE_ORDER.indexOf(identity.role);
  return [...nodes].sort(
    (left, right) => place(left) - place(right) || naturalOrder(left.identity.id, right.identity.id),
  );
}

const ROLE_ORDER = ['ROLE_MAIN', 'ROLE_SHADOW', 'ROLE_WORKER'];

/** The lines above the nodes, below the problems. */
function headLines(status: StatusReply, earlier: EarlierStatus | null): string[] {
  return [
    loadLine(status, earlier),
    ...(status.httpAddress === '' ? [] : [`HTTP clients, and the page: http://${status.httpAddress}`]),
    ...trustLines(status),
    ...arithmeticLines(status),
    ...contextLines(status),
    ...verificationLines(status),
  ];
}

function servingLine(status: StatusReply): string {
  const main = status.nodes.find((node) => node.identity.role === 'ROLE_MAIN')?.identity;
  const { serves, reason } = servingState(status);
  const what = serves ? `serves ${main?.modelName ?? '?'}` : `does not serve ${main?.modelName ?? '?'}: ${reason}`;
  return printableLine(`cluster ${main?.cluster ?? '?'} ${what}`);
}

function loadLine(status: StatusReply, earlier: EarlierStatus | null): string {
  const { activeSequences, queuedRequests, requests, tokens } = status;
  const parts = [
    `${counted(activeSequences, 'answer')} running`,
    `${queuedRequests} waiting`,
    `${counted(requests, 'request')} and ${counted(tokens, 'token')} so far`,
  ];
  if (earlier !== null) parts.push(`${perSecond(tokens - earlier.status.tokens, earlier.elapsedMs)} tokens/s`);
  const shared = rowsPerPass(status, earlier);
  if (shared !== null) parts.push(`${shared} tokens a pass`);
  return parts.join(', ');
}

function counted(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? '' : 's'}`;
}

function nodeLines(status: StatusReply): string[] {
  return tableLines(
    NODE_COLUMNS,
    status.nodes.map((node) => nodeRow(node, status)),
  );
}

function nodeRow(node: NodeStatus, { links, ownWorkerId }: StatusReply): string[] {
  const { identity } = node;
  const isOnMain = identity.id === ownWorkerId;
  const roundTripMs = roundTripTo(node, links);
  return [
    fitted(identity.id, NODE_WIDTH),
    isOnMain ? `own ${shortRole(identity.role)}` : shortRole(identity.role),
    roughDuration(node.uptimeMs),
    // Main's own row has the memory of a worker in its process.
    isOnMain ? '' : usedMemory(node),
    roundTripMs === 0 ? '' : `${roundTripMs.toFixed(roundTripMs < 100 ? 2 : 0)} ms`,
  ];
}

/** In its largest unit: "3 h". */
function roughDuration(ms: number): string {
  return formatDuration(ms).split(' ').slice(0, 2).join(' ');
}

function usedMemory({ deviceMemoryUsedBytes, deviceMemoryBudgetBytes }: NodeStatus): string {
  const used = formatBytes(deviceMemoryUsedBytes);
  return deviceMemoryBudgetBytes === 0 ? used : `${used} of ${formatBytes(deviceMemoryBudgetBytes)}`;
}

/** The text, with its middle left out where it is longer: ids differ at their beginnings and at their ends. */
function fitted(text: string, width: number): string {
  if (text.length <= width) return text;
  const end = Math.floor((width - 1) / 2);
  return `${text.slice(0, width - 1 - end)}…${text.slice(text.length - end)}`;
}

/** The number of experts that a worker keeps stands for the bitmap of them. */
function placementJson(placement: StatusReply['placement']): unknown {
  if (placement === null) return null;
  const workers = placement.workers.map(({ keptExperts = new Uint8Array(), ...worker }) => ({
    ...worker,
    keptExpertsCount: countKept(keptExperts),
  }));
  return snakeCaseKeys({ ...placement, workers });
}

/** The object that `odmoe status --json` prints. */
export function statusJson(status: StatusReply): Record<string, unknown> {
  return {
    nodes: status.nodes.map(nodeJson),
    placement: placementJson(status.placement),
    drained: snakeCaseKeys(
      (status.drained ?? []).map((node) => ({ ...node, othersLackBytes: othersLackBytes(status.nodes, node) ?? 0 })),
    ),
    trust: snakeCaseKeys(status.trust ?? null),
    insecure: status.insecure === true,
    arithmetic: arithmeticName(status.arithmetic),
    context_positions: status.contextPositions ?? null,
    made_for_positions: status.madeForPositions ?? null,
    group_reason: status.groupReason,
    http_address: status.httpAddress === '' ? null : status.httpAddress,
    own_worker_id: status.ownWorkerId === '' ? null : status.ownWorkerId,
    active_sequences: status.activeSequences,
    queued_requests: status.queuedRequests,
    requests: status.requests,
    tokens: status.tokens,
    passes: status.passes,
    verification: snakeCaseKeys(status.verification ?? null),
    problems: snakeCaseKeys(status.problems),
    layer_waits: snakeCaseKeys(status.layerWaits),
    worker_waits: snakeCaseKeys(status.workerWaits),
    worker_hops: snakeCaseKeys(status.workerHops),
    links: snakeCaseKeys(status.links),
  };
}

/** Answers that are not computed exactly are never shown without a word about it. */
function arithmeticLines({ arithmetic = '' }: StatusReply): string[] {
  if (isExact(arithmetic)) return [];
  return [`answers are computed as ${arithmetic}: they differ from those of the model as it was shipped`];
}

function contextLines({ contextPositions = null, madeForPositions = null }: StatusReply): string[] {
  if (contextPositions === null || madeForPositions === null) return [];
  return [`context: ${contextPositions} tokens, past the ${madeForPositions} that the model was made for`];
}

/** Executions that are run again elsewhere to find workers that lie, where main.verify_share asks for it. */
function verificationLines({ verification }: StatusReply): string[] {
  if (verification === null || verification === undefined) return [];
  const { share, agreed, differed, dropped, impossible, open, obstacle } = verification;
  const made = `${agreed + differed} compared, ${differed} differed`;
  const others = `${open} under way, ${dropped} dropped, ${impossible} without a second worker`;
  const line = `a share of ${share} of executions is run again by another worker: ${made}, ${others}`;
  return obstacle === '' ? [line] : [line, `executions cannot be compared: ${printableLine(obstacle)}`];
}

/** Mean rows of prompts and answers in a pass of main, since the earlier status; null: no pass ran. */
function rowsPerPass({ passes }: StatusReply, earlier: EarlierStatus | null): string | null {
  const before = earlier?.status.passes ?? { passes: 0, rows: 0 };
  const count = (passes?.passes ?? 0) - before.passes;
  return passes && count > 0 ? ((passes.rows - before.rows) / count).toFixed(1) : null;
}

/** Nodes that get no new work. */
function drainLines({ drained = [], nodes }: StatusReply): string[] {
  if (drained.length === 0) return [];
  const line = (node: DrainedNode): string => `  ${node.id} ${drainWords(node, othersLackBytes(nodes, node))}`;
  return ['', 'drained:', ...drained.map((node) => printableLine(line(node)))];
}

/** Most problems that are shown; the most important come first. */
const MAX_SHOWN_PROBLEMS = 20;

function problemLines(status: StatusReply): string[] {
  if (status.problems.length === 0) return [];
  const shown = status.problems.slice(0, MAX_SHOWN_PROBLEMS);
  const left = status.problems.length - shown.length;
  const lines = shown.map(({ address, id, code, message }) => {
    return printableLine(`  ${[id, address].filter((part) => part !== '').join(' at ')}: ${message} [${code}]`);
  });
  return ['', 'problems:', ...lines, ...(left === 0 ? [] : [`  and ${left} more, which --json lists`]), ''];
}
