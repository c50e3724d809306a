import type { LayerWait, StatusReply, WorkerWait } from '../../shared/wire/messages.js';
import { statusLines, type StatusOptions } from './status-report.js';
import { tableLines, type TableColumn } from './table.js';

/** Most lines for layers; if there are more layers, several share a line. */
const MAX_LAYER_LINES = 12;
const BAR_CHARACTERS = 38;
/** Most characters of an id, so that a line with two ids fits into 80 columns. */
const MAX_ID_CHARACTERS = 14;

const WORKER_WAIT_COLUMNS: readonly TableColumn[] = [
  { title: 'ms a layer', align: 'left' },
  { title: 'wait', align: 'right' },
  { title: 'load', align: 'right' },
  { title: 'execute', align: 'right' },
  { title: 'other', align: 'right' },
  { title: 'is last', align: 'right' },
  { title: 'costs', align: 'right' },
];

/** The lines of `odmoe top`: the status, and then main's waits in decode. */
export function topLines(status: StatusReply, options: StatusOptions): string[] {
  return [...statusLines(status, options), ...waitLines(status)];
}

/** Layers and workers that main waits for, at most 80 columns wide; empty before any decode. */
export function waitLines({ layerWaits, workerWaits }: Pick<StatusReply, 'layerWaits' | 'workerWaits'>): string[] {
  if (layerWaits.length === 0) return [];
  const [waitMs, stallMs] = [sum(layerWaits, (wait) => wait.waitMs), sum(layerWaits, (wait) => wait.stallMs)];
  return [
    '',
    `a pass waits ${waitMs.toFixed(1)} ms for experts, ${stallMs.toFixed(1)} ms of it for loads (#)`,
    ...layerLines(layerWaits),
    ...slowestLines(workerWaits),
    ...(workerWaits.length === 0 ? [] : ['', ...tableLines(WORKER_WAIT_COLUMNS, workerWaits.map(workerRow))]),
  ];
}

function layerLines(waits: readonly LayerWait[]): string[] {
  const groups = groupsOf(waits);
  const longestMs = Math.max(...groups.map(({ waitMs }) => waitMs));
  return groups.map(({ title, waitMs, stallMs, slowest }) => {
    const characters = longestMs === 0 ? 0 : Math.round((waitMs / longestMs) * BAR_CHARACTERS);
    const stalled = waitMs === 0 ? 0 : Math.min(characters, Math.round((stallMs / waitMs) * characters));
    const bar = '#'.repeat(stalled) + '='.repeat(characters - stalled);
    return `  ${title.padEnd(9)} ${waitMs.toFixed(2).padStart(8)} ms  ${bar.padEnd(BAR_CHARACTERS)}  ${slowest}`.trimEnd();
  });
}

interface LayerGroup {
  title: string;
  /** Means over its layers. */
  waitMs: number;
  stallMs: number;
  /** The worker with the largest wait, summed over the layers of which it is the slowest. */
  slowest: string;
}

/** Groups adjacent layers, with as many per line as needed. */
function groupsOf(waits: readonly LayerWait[]): LayerGroup[] {
  const size = Math.ceil(waits.length / MAX_LAYER_LINES);
  return Array.from({ length: Math.ceil(waits.length / size) }, (_, index): LayerGroup => {
    const group = waits.slice(index * size, (index + 1) * size);
    const [first, last] = [group[0]?.layer ?? 0, group[group.length - 1]?.layer ?? 0];
    return {
      title: first === last ? `layer ${first}` : `${first} to ${last}`,
      waitMs: sum(group, ({ waitMs }) => waitMs) / group.length,
      stallMs: sum(group, ({ stallMs }) => stallMs) / group.length,
      slowest: shortId(slowestOf(group)),
    };
  });
}

/** The slowest worker: the one that costs most by answering last; if equal, the one that main waits for longest. */
function slowestLines(waits: readonly WorkerWait[]): string[] {
  const slowest = waits
    .filter(({ lastShare }) => lastShare > 0)
    .reduce<WorkerWait | null>((found, wait) => (found === null || isSlower(wait, found) ? wait : found), null);
  if (slowest === null) return [];
  const { worker, lastShare, costMs } = slowest;
  return [
    `slowest: ${shortId(worker)}, last in ${percent(lastShare)} of its layers, costing ${costMs.toFixed(2)} ms each`,
  ];
}

function workerRow({ worker, waitMs, stallMs, executeMs, otherMs, lastShare, costMs }: WorkerWait): string[] {
  const times = [waitMs, stallMs, executeMs, otherMs].map((ms) => ms.toFixed(2));
  return [shortId(worker), ...times, percent(lastShare), costMs.toFixed(2)];
}

function percent(share: number): string {
  return `${Math.round(share * 100)} %`;
}

function shortId(id: string): string {
  return id.length <= MAX_ID_CHARACTERS ? id : `${id.slice(0, MAX_ID_CHARACTERS - 2)}..`;
}

function isSlower(wait: WorkerWait, other: WorkerWait): boolean {
  return wait.costMs === other.costMs ? wait.waitMs > other.waitMs : wait.costMs > other.costMs;
}

function slowestOf(group: readonly LayerWait[]): string {
  const waits = new Map<string, number>();
  for (const { slowestWorker: id, waitMs } of group) if (id !== '') waits.set(id, (waits.get(id) ?? 0) + waitMs);
  return [...waits].reduce<readonly [string, number]>((best, next) => (next[1] > best[1] ? next : best), ['', -1])[0];
}

function sum<T>(items: readonly T[], value: (item: T) => number): number {
  return items.reduce((total, item) => total + value(item), 0);
}
