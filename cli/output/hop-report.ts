import type { HopStages, StatusReply, WorkerHops } from '../../shared/wire/messages.js';
import { tableLines, type TableColumn } from './table.js';

const COLUMNS: readonly TableColumn[] = [
  { title: 'hop, us: p50/p99', align: 'left' },
  { title: 'round trip', align: 'right' },
  { title: 'transit', align: 'right' },
  { title: 'call', align: 'right' },
  { title: 'hand-off', align: 'right' },
  { title: 'execute', align: 'right' },
  { title: 'reply', align: 'right' },
];

/** Table of the stages of main's messages to its workers; empty before any decode. */
export function hopLines({ workerHops }: Pick<StatusReply, 'workerHops'>): string[] {
  return workerHops.length === 0 ? [] : ['', ...hopTable(workerHops)];
}

/** One line per worker, in microseconds. */
export function hopTable(hops: readonly WorkerHops[]): string[] {
  return tableLines(
    COLUMNS,
    hops.map(({ worker, median, p99 }) => [
      worker,
      ...cells(median).map((medianUs, index) => `${medianUs}/${cells(p99)[index] ?? ''}`),
    ]),
  );
}

function cells({ roundTripMs, transitMs, callMs, handOffMs, executeMs, replyMs }: HopStages): string[] {
  return [roundTripMs, transitMs, callMs, handOffMs, executeMs, replyMs].map((ms) => (ms * 1000).toFixed(0));
}
