/** The mixes of two releases in one cluster: an answer of each must equal, to the bit, that of one process. */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import type { LocalEngine } from '../../../engine/generation/local-engine.js';
import { OdmoeError } from '../../../shared/base/errors/odmoe-error.js';
import type { GenerateRequest, NodeIdentity } from '../../../shared/wire/messages.js';
import { assertSameAnswer, collect, type CollectedAnswer, requestFor } from './answers.js';
import {
  type Build,
  endMixedCluster,
  type MemberId,
  MixedCluster,
  PEER_IDS,
  type Protection,
} from './mixed-cluster.js';
import { openReference } from './test-models.js';
import { waitUntil } from './wait-until.js';

export const MODEL = 'tiny';
const PROMPT = Array.from({ length: 40 }, (_, index) => 1 + ((index * 37) % 250));
const SAMPLING = { temperature: 0.8, topK: 40, topP: 0.95, minP: 0, repetitionPenalty: 0, seed: 7 };
const REQUESTS: readonly GenerateRequest[] = [
  requestFor(PROMPT, { maxTokens: 32, logprobs: 5 }),
  requestFor(PROMPT.slice(3), { maxTokens: 32, logprobs: 2, sampling: SAMPLING }),
];
export const MEMBERS: readonly MemberId[] = ['main', ...PEER_IDS];
/** While main is stopped and started, nobody answers. */
const NO_MAIN_CODES: readonly string[] = ['NO_MAIN', 'CANCELLED'];
const RETRY_MS = 50;

/** One of the two releases of a mix. */
export interface Release extends Build {
  /** The newest protocol that its identities state; 0: they state none. */
  readonly newestProtocol: number;
  /** Its number, as identities state it. */
  readonly release: string;
}

interface Mix {
  readonly what: string;
  /** The daemons that are newer at the start. */
  readonly newer: readonly MemberId[];
  /** The daemons that are then stopped and started as the other release, one after another, while answers go on. */
  readonly restarted: readonly MemberId[];
}

export const MIXES: readonly Mix[] = [
  { what: 'main is older', newer: PEER_IDS, restarted: [] },
  { what: 'the workers are older', newer: ['main', 'shadow'], restarted: [] },
  { what: 'half of the daemons are newer', newer: ['main', 'worker-1'], restarted: [] },
  { what: 'each is updated while answers go on', newer: [], restarted: [...PEER_IDS, 'main'] },
];

/** Registers a test of each mix; call this in a describe. `releases` is called when the tests run. */
export function testMixes(protection: Protection, releases: () => { older: Release; newer: Release }): void {
  let reference: LocalEngine;
  let expected: readonly CollectedAnswer[];
  let cluster: MixedCluster | null = null;

  before(async () => {
    reference = await openReference(MODEL);
    const { signal } = new AbortController();
    expected = await Promise.all(REQUESTS.map((request) => collect(reference.generate(request, signal))));
  });

  after(() => reference.dispose());

  afterEach(async function () {
    await endMixedCluster(this, cluster);
    cluster = null;
  });

  for (const { what, newer: isNewer, restarted } of MIXES) {
    it(`gives the answers of one process, to the bit, where ${what}`, async () => {
      const { older, newer } = releases();
      const of = new Map(MEMBERS.map((id) => [id, isNewer.includes(id) ? newer : older]));
      cluster = await MixedCluster.start(MODEL, protection, of);
      const load = new Load(cluster, expected);
      try {
        await assertStatus(cluster, of);
        await load.answered();
        for (const id of restarted) {
          const other = of.get(id) === newer ? older : newer;
          of.set(id, other);
          await cluster.restartAs(id, other);
          await cluster.waitForAll();
          await assertStatus(cluster, of);
          await load.answered();
        }
      } finally {
        await load.end();
      }
    });
  }
}

/** Main's status names the release and the newest protocol of each daemon. A main that states no newest protocol itself knows none of others. */
async function assertStatus(cluster: MixedCluster, of: ReadonlyMap<MemberId, Release>): Promise<void> {
  const { nodes, problems } = await cluster.status();
  const stated = ({ release, newestProtocol = 0 }: Pick<NodeIdentity, 'release' | 'newestProtocol'>): string =>
    `${release}, protocol ${newestProtocol}`;
  const seen = Object.fromEntries(nodes.map(({ identity }) => [identity.id, stated(identity)]));
  const isMainSilent = of.get('main')?.newestProtocol === 0;
  const wanted = Object.fromEntries(
    [...of].map(([id, { release, newestProtocol }]) => [
      id,
      stated({ release, newestProtocol: isMainSilent ? 0 : newestProtocol }),
    ]),
  );
  assert.deepEqual(seen, wanted);
  assert.deepEqual(problems, []);
}

/** Clients who ask the same again and again, and check each answer. */
class Load {
  private ending = false;
  private readonly counts = REQUESTS.map(() => 0);
  private readonly clients: readonly Promise<void>[];

  constructor(
    private readonly cluster: MixedCluster,
    private readonly expected: readonly CollectedAnswer[],
  ) {
    this.clients = REQUESTS.map((request, index) => this.askAgain(request, index));
    // The test waits for them at its end, and may fail before.
    for (const client of this.clients) client.catch(() => undefined);
  }

  /** Resolves when each client has got one more answer to a request that began after the call. */
  async answered(): Promise<void> {
    const due = this.counts.map((count) => count + 2);
    const all = waitUntil('each client has got an answer', () =>
      this.counts.every((count, index) => count >= (due[index] ?? 0)),
    );
    await Promise.race([all, Promise.all(this.clients)]);
  }

  async end(): Promise<void> {
    this.ending = true;
    await Promise.all(this.clients);
  }

  private async askAgain(request: GenerateRequest, index: number): Promise<void> {
    const expected = this.expected[index];
    assert.ok(expected !== undefined);
    while (!this.ending) {
      try {
        assertSameAnswer(await this.cluster.ask(request), expected);
        this.counts[index] = (this.counts[index] ?? 0) + 1;
      } catch (thrown) {
        if (!(thrown instanceof OdmoeError) || !NO_MAIN_CODES.includes(thrown.code)) throw thrown;
        await sleep(RETRY_MS);
      }
    }
  }
}
