import { InvalidArgumentError, type Command } from 'commander';
import { avoidMarkingPauses } from '../../shared/daemon/collection-pauses.js';
import { measureHops, type HopRow } from './measure-hops.js';

/** Adds `odmoe bench hop`. */
export function registerBenchHop(bench: Command): void {
  bench
    .command('hop')
    .description('round trip of one hidden state main -> worker -> main, beside a plain TCP ping-pong in the same run')
    .option('--seconds <count>', 'how long to measure, in all', seconds, 12)
    .option('--json', 'one JSON object on stdout')
    .action(async (options: { seconds: number; json?: boolean }) => {
      avoidMarkingPauses();
      const rows = await measureHops(options.seconds);
      process.stdout.write(options.json === true ? `${JSON.stringify(asJson(rows))}\n` : asTable(rows));
    });
}

function seconds(value: string): number {
  const count = Number(value);
  if (count > 0 && count <= 3600) return count;
  throw new InvalidArgumentError('Give a number of seconds up to 3600.');
}

function asJson(rows: readonly HopRow[]): object {
  const times = ({ medianUs, p99Us, roundTrips }: HopRow['tcp']): object => ({
    median_us: medianUs,
    p99_us: p99Us,
    round_trips: roundTrips,
  });
  return {
    hops: rows.map(({ name, bytes, workers, tcp, grpc, ratio }) => ({
      name,
      bytes,
      workers,
      tcp: times(tcp),
      grpc: times(grpc),
      ratio,
    })),
  };
}

function asTable(rows: readonly HopRow[]): string {
  const cells = rows.map(({ name, tcp, grpc, ratio }) => [
    name,
    ...[tcp.medianUs, tcp.p99Us, grpc.medianUs, grpc.p99Us].map((us) => us.toFixed(0)),
    ratio.toFixed(2),
  ]);
  const header = ['hop', 'TCP median', 'TCP p99', 'gRPC median', 'gRPC p99', 'ratio'];
  const lines = [header, ...cells].map((line) =>
    line.map((cell, index) => (index === 0 ? cell.padEnd(20) : cell.padStart(12))).join(''),
  );
  return `${lines.join('\n')}\n(round trips on this machine, microseconds)\n`;
}
