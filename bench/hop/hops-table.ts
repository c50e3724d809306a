/** The figures of `odmoe bench hop`, as JSON and as a table. */
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import type { HopRow } from './measure-hops.js';

export function hopsJson(rows: readonly HopRow[]): unknown {
  return snakeCaseKeys({ hops: rows });
}

const WAYS = [
  { title: 'TCP', timesOf: ({ tcp }: HopRow) => tcp },
  { title: 'gRPC', timesOf: ({ grpc }: HopRow) => grpc },
  { title: 'TLS', timesOf: ({ tls }: HopRow) => tls },
] as const;

const NAME_WIDTH = 26;
const CELL_WIDTH = 10;

/** Two tables: times of round trips by each transport, then ratios. */
export function hopsTable(rows: readonly HopRow[]): string {
  const times = rows.flatMap((row) =>
    WAYS.map(({ title, timesOf }) => {
      const { p10Us, medianUs, p99Us, processorUs } = timesOf(row);
      return [`${row.name}, ${title}`, ...[p10Us, medianUs, p99Us, processorUs].map((us) => us.toFixed(0))];
    }),
  );
  const ratios = rows.map(({ name, ratio, tlsRatio, tlsP10Ratio, grpc, tls }) => [
    name,
    ...[ratio, tlsRatio, tlsP10Ratio, tls.processorUs / grpc.processorUs].map((value) => value.toFixed(2)),
  ]);
  return [
    ...aligned([['microseconds', 'p10', 'median', 'p99', 'CPU'], ...times]),
    '',
    ...aligned([['ratio', 'gRPC/TCP', 'TLS/gRPC', 'p10', 'CPU'], ...ratios]),
    '(round trips on this machine; CPU: processor time of both ends a round trip; gRPC: in plaintext; TLS: gRPC behind TLS 1.3 with',
    'certificates on both sides; ratios of medians, then of TLS to gRPC by p10 and by CPU)',
    '',
  ].join('\n');
}

function aligned(lines: readonly (readonly string[])[]): string[] {
  return lines.map((line) =>
    line.map((cell, index) => (index === 0 ? cell.padEnd(NAME_WIDTH) : cell.padStart(CELL_WIDTH))).join(''),
  );
}
