/** Hops of a running cluster, by stage, compared with bare round trips of the same size in the same minutes. */
import type { ReachedMain } from '../../cli/client/find-main.js';
import { STATUS_TIMEOUT_MS } from '../../cli/client/ask-status.js';
import { hopTable } from '../../cli/output/hop-report.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import type { NodeStatus, StatusReply, WorkerHops } from '../../shared/wire/messages.js';
import { answerRequest, collectAnswer } from '../../cli/client/measured-request.js';
import { measureHops, type HopRow } from './measure-hops.js';
import { countInParts } from '../../shared/decisions/caching/pool-capacities.js';
import { fetchStatus, generate } from '../../shared/transport/node-clients.js';

const PROMPT_IDS = [1, 2, 3];
const VALUE_BYTES = 4;

export interface LiveHops {
  workers: readonly WorkerHops[];
  /** Round trips with as many bytes as main sends for a hop. */
  bare: HopRow;
  /** Ratio of the slowest worker: (median round trip minus median execution) divided by the bare median. */
  ratio: number;
}

/**
 * Asks main for an answer of `tokens` tokens, then measures bare hops for `seconds`. Throws the errors of the request to main, NO_WORKERS, and
 * USAGE if every hop loaded an expert.
 */
export async function measureLiveHops(
  { address, transport }: ReachedMain,
  tokens: number,
  seconds: number,
): Promise<LiveHops> {
  const before = await fetchStatus(transport, address, STATUS_TIMEOUT_MS);
  const controller = new AbortController();
  await collectAnswer(generate(transport, address, answerRequest(PROMPT_IDS, tokens), controller.signal));
  const after = await fetchStatus(transport, address, STATUS_TIMEOUT_MS);
  const workers = after.workerHops.filter(({ worker, hops }) => hops > hopsOf(before, worker));
  if (workers.length === 0) throw noHopTimed(after);
  const bytes = bytesOfHop(before, after);
  const [bare] = await measureHops(seconds, [{ name: `${bytes} bytes`, bytes, workers: 1 }]);
  if (bare === undefined) throw new OdmoeError('INTERNAL', 'a case of bench hop gave no row');
  return { workers, bare, ratio: ratioOf(workers, bare) };
}

/** The error for a missing measurement, with its reason. A hop is timed only if the worker had all experts ready. */
export function noHopTimed({ nodes }: Pick<StatusReply, 'nodes'>): OdmoeError {
  const workers = nodes.filter(({ identity }) => identity.role === 'ROLE_WORKER');
  if (workers.length === 0) {
    return new OdmoeError(
      'NO_WORKERS',
      'no worker is connected to this main, so it makes no hops: start one (odmoe worker)',
    );
  }
  const inPart = workers.filter(
    ({ cache }) => cache !== null && cache.capacities.full === 0 && countInParts(cache.capacities) > 0,
  );
  if (inPart.length === workers.length) {
    return new OdmoeError(
      'USAGE',
      `the caches of these workers (${namesOf(inPart)}) keep experts compressed or in part only, so every hop loads, and only hops that load ` +
        'nothing are timed: give them whole experts by worker.cache_policy: lru, or by a larger worker.cache',
    );
  }
  return new OdmoeError(
    'USAGE',
    'every hop of this answer loaded experts, and only hops that load nothing are timed: ask for more tokens (--tokens), or give ' +
      'workers a worker.cache that holds what they run',
  );
}

const NAMES_SHOWN = 3;

function namesOf(workers: readonly NodeStatus[]): string {
  const names = workers.slice(0, NAMES_SHOWN).map(({ identity }) => identity.id);
  return workers.length > NAMES_SHOWN ? `${names.join(', ')} and others` : names.join(', ');
}

/** The hop's time without the execution, divided by the time of a bare hop; of the slowest worker. */
export function ratioOf(workers: readonly Pick<WorkerHops, 'median'>[], bare: Pick<HopRow, 'grpc'>): number {
  const othersMs = workers.map(({ median: { roundTripMs, executeMs } }) => roundTripMs - executeMs);
  return (Math.max(...othersMs) * 1000) / bare.grpc.medianUs;
}

/** Mean bytes per hop that main sent to workers between the two statuses, as a whole number of values. */
export function bytesOfHop(
  before: Pick<StatusReply, 'links' | 'workerHops'>,
  after: Pick<StatusReply, 'links' | 'workerHops'>,
): number {
  let [sentBytes, hops] = [0, 0];
  for (const { worker, hops: all } of after.workerHops) {
    hops += all - hopsOf(before, worker);
    sentBytes += sentTo(after, worker) - sentTo(before, worker);
  }
  return Math.max(VALUE_BYTES, Math.round(sentBytes / Math.max(1, hops) / VALUE_BYTES) * VALUE_BYTES);
}

export function liveHopsTable({ workers, bare, ratio }: LiveHops): string {
  const { medianUs, p99Us } = bare.grpc;
  return [
    ...hopTable(workers),
    `bare hop of ${bare.bytes} bytes: ${medianUs.toFixed(0)}/${p99Us.toFixed(0)}`,
    `round trip less execution, of the slowest worker: ${ratio.toFixed(2)} bare hops`,
    '',
  ].join('\n');
}

export function liveHopsJson({ workers, bare: { bytes, grpc }, ratio }: LiveHops): unknown {
  return snakeCaseKeys({ workers, bare: { bytes, ...grpc }, ratio });
}

function hopsOf({ workerHops }: Pick<StatusReply, 'workerHops'>, id: string): number {
  return workerHops.find(({ worker }) => worker === id)?.hops ?? 0;
}

function sentTo({ links }: Pick<StatusReply, 'links'>, id: string): number {
  return links.find(({ peer }) => peer === id)?.sentBytes ?? 0;
}
