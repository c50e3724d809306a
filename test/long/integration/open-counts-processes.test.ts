import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { Agent, request as httpRequest } from 'node:http';
import { join } from 'node:path';
import { packageRoot } from '../../../shared/base/files/package-root.js';
import { checkSizes } from '../../../simulator/faults/check-sizes.js';
import { requestFor } from '../../integration/harness/answers.js';
import { endCluster, ProcessCluster } from '../../integration/harness/process-cluster.js';
import { waitUntil } from '../../integration/harness/wait-until.js';
import { fetchCounts } from '../../wall.js';

const COUNTS_TIMEOUT_MS = 20_000;
/** Requests of one round over each connection that is kept. */
const REQUESTS = 3;
const ROUNDS = 3;
/** Begin the names of entries of collections. */
const ENTRIES = 'entries ';

type Counts = ReadonlyMap<string, number>;

async function countsOf(address: string): Promise<Counts> {
  const { counts } = await fetchCounts(address, COUNTS_TIMEOUT_MS);
  const all = new Map(counts.map(({ name, count }) => [name, count]));
  // Main and shadow keep rows of earlier requests, within a bound, and the memory that they take.
  const kept = ['entries RetainedSequences.retained', 'entries PrefixIndex.sequences'].map(
    (name) => all.get(name) ?? 0,
  );
  all.set(
    'handles sequences',
    kept.reduce((left, count) => left - count, all.get('handles sequences') ?? 0),
  );
  all.delete('handles memoryBytes');
  return all;
}

/** Names of the counts that have grown. Entries of a place with a bound may grow. */
function grown(before: Counts, after: Counts): string[] {
  const sizes = (counts: Counts): Map<string, number> =>
    new Map(
      [...counts].flatMap(([name, count]) => (name.startsWith(ENTRIES) ? [[name.slice(ENTRIES.length), count]] : [])),
    );
  const more = [...after].filter(([name, count]) => !name.startsWith(ENTRIES) && count > (before.get(name) ?? 0));
  const entries = checkSizes(new Map([['it', sizes(before)]]), new Map([['it', sizes(after)]]));
  return [
    ...more.map(([name, count]) => `${name}: ${before.get(name) ?? 0}, then ${count}`),
    ...entries.map(({ detail }) => detail),
  ];
}

/** A text in answer to a prompt; `leaveAfterBytes`: the client goes when it has so much of the answer. */
function complete(agent: Agent, address: string, leaveAfterBytes = Infinity): Promise<number> {
  const body = JSON.stringify({ prompt: 'a fox', max_tokens: 6, stream: true, temperature: 0 });
  return new Promise((resolve, reject) => {
    const asked = httpRequest(
      `http://${address}/v1/completions`,
      { method: 'POST', agent, headers: { 'content-type': 'application/json' } },
      (response) => {
        let bytes = 0;
        response.on('data', (piece: Buffer) => {
          bytes += piece.length;
          if (bytes >= leaveAfterBytes) {
            asked.destroy();
            resolve(bytes);
          }
        });
        response.on('end', () => resolve(response.statusCode === 200 ? bytes : Number.NaN));
        response.on('error', () => resolve(bytes));
      },
    );
    asked.on('error', (error) => (leaveAfterBytes === Infinity ? reject(error) : resolve(0)));
    asked.end(body);
  });
}

describe('the open resources of daemons after many requests', function () {
  this.timeout(180_000);
  let cluster: ProcessCluster | null = null;
  const agent = new Agent({ keepAlive: true, maxSockets: 2 });

  afterEach(async function () {
    agent.destroy();
    await endCluster(this, cluster);
    cluster = null;
  });

  it('are no more than after the first ones, over kept connections, with clients that leave', async () => {
    cluster = await ProcessCluster.start('demo', 2, true, ['--http', '127.0.0.1:0']);
    const { nodes, httpAddress } = await cluster.status();
    const addresses = nodes.map(({ identity }) => identity.address);
    const round = async (running: ProcessCluster): Promise<void> => {
      for (let number = 0; number < REQUESTS; number++) {
        const bytes = await Promise.all([complete(agent, httpAddress), complete(agent, httpAddress)]);
        assert.ok(bytes.every((count) => count > 0));
      }
      await complete(agent, httpAddress, 1);
      await running.ask(requestFor([1, 2, 3], { maxTokens: 4 }));
      const gone = new AbortController();
      await assert.rejects(
        running.ask(requestFor([4, 5, 6], { maxTokens: 50 }), () => gone.abort(), gone.signal),
        { code: 'CANCELLED' },
      );
      // As many connections as before the client that went.
      await Promise.all([complete(agent, httpAddress), complete(agent, httpAddress)]);
    };
    await round(cluster);
    await waitUntil('the first answers are over', async () => (await cluster?.status())?.activeSequences === 0);
    const before = await Promise.all(addresses.map(countsOf));
    for (let number = 0; number < ROUNDS; number++) await round(cluster);
    let more: string[][] = [];
    const isRest = async (): Promise<boolean> => {
      const after = await Promise.all(addresses.map(countsOf));
      more = after.map((counts, index) => grown(before[index] ?? new Map(), counts));
      return more.every((names) => names.length === 0);
    };
    await waitUntil('no daemon has more open', isRest).catch(() => undefined);
    assert.deepEqual(
      more,
      addresses.map(() => []),
    );
    const shown = spawnSync(process.execPath, [
      join(packageRoot(), 'bin', 'odmoe'),
      'debug',
      'counts',
      '--at',
      addresses[0] ?? '',
      '--json',
    ]);
    assert.equal(shown.status, 0, shown.stderr.toString());
    const counts = JSON.parse(shown.stdout.toString()) as Record<string, number>;
    assert.ok((counts['living timer'] ?? 0) > 0 && (counts['entries Roster.workers'] ?? 0) === 2);
  });
});
