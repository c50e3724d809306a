import assert from 'node:assert/strict';
import {
  FORGET_JOINED_AFTER_MS,
  type MembershipOptions,
  UNRESPONSIVE_PAUSE_MS,
} from '../../main-node/cluster/membership.js';
import { FIRST_PAUSE_MS, MAX_FAILURES_IN_A_ROW } from '../../main-node/cluster/failing-workers.js';
import { MAX_RECONNECT_DELAY_MS } from '../../main-node/cluster/peer-dial.js';
import { ARRIVALS_OF_TENSOR_PEER, GREETINGS_OF_PEER } from '../../shared/wire/limits.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import type { JoinReply } from '../../shared/wire/messages.js';
import { identity, membershipOf, ScriptedWorkers, type TestMembership } from './membership-setting.js';
import { onVirtualClock } from './virtual-run.js';
import { plainExecute, plainResult } from './wire-messages.js';

/** Longer than anything that main does at once, and shorter than any pause between attempts. */
const MOMENT_MS = 2;
/** Time after which pauses between attempts have their greatest length. */
const LONG_MS = 10 * MAX_RECONNECT_DELAY_MS;
const A_LITTLE_MS = 50;
const A = '10.0.0.1:1';
const B = '10.0.0.2:1';
const C = '10.0.0.3:1';
const never = new AbortController().signal;

interface Setting extends TestMembership {
  workers: ScriptedWorkers;
  runtime: Runtime;
  passes: (ms: number) => Promise<void>;
  /** Addresses with a problem. */
  failing: () => string[];
  /** Ids of connected workers, each with the address that main dialled. */
  connected: () => string[];
  discover: (id: string, address: string) => void;
}

function withWorkers(
  body: (setting: Setting) => Promise<void>,
  changes: Partial<MembershipOptions> = {},
): Promise<void> {
  return onVirtualClock(async (runtime) => {
    const workers = new ScriptedWorkers();
    const { roster, membership } = membershipOf({ runtime, transport: workers.transport, ...changes }, runtime);
    await body({
      roster,
      membership,
      workers,
      runtime,
      passes: (ms) => runtime.sleep(ms),
      failing: () => membership.problems().map(({ address }) => address),
      connected: () => roster.connectedWorkers().map(({ id, address }) => `${id} ${address}`),
      discover: (id, address) => {
        membership.addDiscovered({ ...identity(id), role: 'worker', authority: null, address });
      },
    });
    await membership.stop();
    roster.stop();
  });
}

/** A cluster's roster as main has it. */
class TestRosters {
  private changed: () => void = () => undefined;
  watchers = 0;
  readonly removals = new Map<string, string>();

  constructor(public signedRoster: Uint8Array | null) {}

  removalOf(id: string): string | null {
    return this.removals.get(id) ?? null;
  }

  watch(changed: () => void): () => void {
    this.watchers += 1;
    this.changed = changed;
    return () => (this.watchers -= 1);
  }

  change(signed: Uint8Array | null): void {
    this.signedRoster = signed;
    this.changed();
  }
}

describe("main: the cluster's roster", () => {
  const [first, second] = [Buffer.from('first'), Buffer.from('second')];
  const connectBoth = async ({ workers, membership, passes }: Setting): Promise<void> => {
    workers.at.set(A, identity('w'));
    workers.at.set(B, identity('s', 'ROLE_SHADOW'));
    membership.addConfigured([{ role: 'worker', id: 'w', address: A }]);
    membership.addConfigured([{ role: 'shadow', id: 's', address: B }]);
    await passes(A_LITTLE_MS);
  };
  /** The messages of each stream, with the rosters in words. */
  const sent = ({ workers }: Setting): string[][] =>
    workers.opened.map(({ stream }) =>
      stream.sent.map((message) =>
        message.kind === 'roster' ? Buffer.from(message.roster.signed).toString() : message.kind,
      ),
    );

  it('goes to workers and shadows before anything else, and again when it has changed', async () => {
    const rosters = new TestRosters(first);
    await withWorkers(
      async (setting) => {
        await connectBoth(setting);
        for (const messages of sent(setting)) {
          assert.deepEqual(messages.slice(0, 3), ['hello', 'first', 'placement']);
          assert.equal(messages.filter((message) => message === 'first').length, 1);
        }
        rosters.change(first);
        rosters.change(second);
        for (const messages of sent(setting)) {
          assert.deepEqual(
            messages.filter((message) => ['first', 'second'].includes(message)),
            ['first', 'second'],
          );
        }
        setting.workers.last.close();
        await setting.passes(A_LITTLE_MS);
        assert.deepEqual(sent(setting)[2]?.slice(0, 2), ['hello', 'second'], 'a node that comes back gets the newest');
      },
      { trust: rosters },
    );
    assert.equal(rosters.watchers, 0);
  });

  it('ends the search for a removed daemon that answers no more; one of the configuration is said to be removed', async () => {
    const rosters = new TestRosters(first);
    await withWorkers(
      async ({ workers, membership, passes, failing, discover }) => {
        workers.at.set(A, identity('w'));
        workers.at.set(B, identity('v'));
        membership.addConfigured([{ role: 'worker', id: 'w', address: A }]);
        discover('v', B);
        await passes(A_LITTLE_MS);
        assert.deepEqual([workers.opened.length, failing()], [2, []]);
        workers.at.clear();
        for (const { stream } of workers.opened) stream.close();
        await passes(A_LITTLE_MS);
        assert.deepEqual(failing().sort(), [A, B], 'both may come back');
        for (const id of ['w', 'v']) rosters.removals.set(id, `worker ${id} was removed from "test"`);
        await passes(LONG_MS);
        const [problem, ...others] = membership.problems();
        assert.deepEqual(
          [problem?.id, problem?.code, problem?.message, others],
          ['w', 'NODE_REMOVED', 'worker w was removed from "test"', []],
        );
      },
      { trust: rosters },
    );
  });

  it('is not sent before there is one, nor in a cluster without an authority', async () => {
    const kinds = async (trust: TestRosters | null): Promise<string[]> => {
      const seen: string[] = [];
      await withWorkers(
        async (setting) => {
          await connectBoth(setting);
          seen.push(...sent(setting).flat());
        },
        { trust },
      );
      return [...new Set(seen)];
    };
    assert.deepEqual(await kinds(null), ['hello', 'placement']);
    assert.deepEqual(await kinds(new TestRosters(null)), ['hello', 'placement']);
  });
});

describe('main: a failing worker', () => {
  it('is left alone for a minute after an execute times out, and is then used again', () =>
    withWorkers(async ({ roster, membership, workers, passes, connected, failing }) => {
      workers.at.set(A, identity('w'));
      membership.addConfigured([{ role: 'worker', id: 'w', address: A }]);
      await passes(A_LITTLE_MS);
      const [link] = roster.connectedWorkers();
      assert.ok(link !== undefined);
      const asked = link.execute(plainExecute({ layer: 0, expert: 0 }), 1, () => undefined, never);
      await assert.rejects(asked, { code: 'WORKER_LOST' });
      await passes(UNRESPONSIVE_PAUSE_MS - LONG_MS);
      assert.deepEqual([connected(), failing(), workers.opened.length], [[], [A], 1]);
      assert.match(membership.problems()[0]?.message ?? '', /let an execute run out of time.*left alone for 60 s/);
      await passes(2 * LONG_MS);
      assert.deepEqual([connected(), failing(), workers.opened.length], [[`w ${A}`], [], 2]);
    }));

  it('is left alone, too, where its stream was closed because of a flood', () =>
    withWorkers(async ({ membership, workers, passes, connected }) => {
      workers.at.set(A, identity('w'));
      membership.addConfigured([{ role: 'worker', id: 'w', address: A }]);
      await passes(A_LITTLE_MS);
      const { last } = workers;
      const flood = last.arrivals?.arrived(2 * ARRIVALS_OF_TENSOR_PEER.bytes.burst);
      assert.equal(flood?.code, 'PROTOCOL_VIOLATION');
      last.close(flood);
      await passes(UNRESPONSIVE_PAUSE_MS - LONG_MS);
      assert.deepEqual([connected(), workers.opened.length], [[], 1]);
      assert.match(membership.problems()[0]?.message ?? '', /sent what nobody asked for.*left alone for 60 s/);
      await passes(2 * LONG_MS);
      assert.deepEqual(connected(), [`w ${A}`]);
    }));

  it('is used at once after a restart', () =>
    withWorkers(async ({ roster, membership, workers, passes, connected }) => {
      workers.at.set(A, identity('w'));
      membership.addConfigured([{ role: 'worker', id: 'w', address: A }]);
      await passes(A_LITTLE_MS);
      const [link] = roster.connectedWorkers();
      assert.ok(link !== undefined);
      const asked = link.execute(plainExecute({ layer: 0, expert: 0 }), 1, () => undefined, never);
      asked.catch(() => workers.at.set(A, { ...identity('w'), bootId: 'the next one' }));
      await assert.rejects(asked);
      await passes(MAX_RECONNECT_DELAY_MS + MOMENT_MS);
      assert.deepEqual(connected(), [`w ${A}`]);
    }));

  it('is greeted again where it refused main before, or ended its stream', () =>
    withWorkers(async ({ membership, workers, passes, connected, failing }) => {
      workers.at.set(A, identity('w'));
      workers.refusing.set(A, { code: 'NODE_REFUSED', message: 'not now' });
      membership.addConfigured([{ role: 'worker', id: 'w', address: A }]);
      await passes(A_LITTLE_MS);
      assert.deepEqual([connected(), failing()], [[], [A]]);
      workers.refusing.clear();
      await passes(MAX_RECONNECT_DELAY_MS);
      assert.deepEqual([connected(), failing()], [[`w ${A}`], []]);
      workers.last.close();
      assert.deepEqual(connected(), []);
      await passes(A_LITTLE_MS);
      assert.deepEqual(connected(), [`w ${A}`], 'a connection that stood has made the pauses short');
    }));

  it('stays in use however often it fails, where it succeeds in between', () =>
    withWorkers(async ({ roster, workers, membership, passes }) => {
      workers.at.set(A, identity('a'));
      workers.at.set(B, identity('b'));
      membership.addConfigured([
        { role: 'worker', id: 'b', address: B },
        { role: 'worker', id: 'a', address: A },
      ]);
      await passes(A_LITTLE_MS);
      const { last } = workers;
      const answer = (failed: boolean): void => {
        const failure = failed ? { code: 'INTERNAL', message: 'no' } : null;
        last.arrive({ kind: 'result', result: plainResult({ requestId: 1, expert: { failure } }) });
      };
      const placed = (): number => roster.placement?.workers.length ?? 0;
      for (let round = 0; round < 3; round += 1) {
        for (let failure = 1; failure < MAX_FAILURES_IN_A_ROW; failure += 1) answer(true);
        answer(false);
      }
      assert.equal(placed(), 2);
      for (let failure = 0; failure < MAX_FAILURES_IN_A_ROW; failure += 1) answer(true);
      assert.equal(placed(), 1);
      await passes(FIRST_PAUSE_MS + A_LITTLE_MS);
      assert.equal(placed(), 2);
    }));
});

describe('main: a worker with several addresses', () => {
  it('gets one stream, and the next address is dialled when that breaks', () =>
    withWorkers(async ({ membership, workers, passes, connected }) => {
      for (const address of [A, B]) workers.at.set(address, identity('w'));
      membership.addConfigured([A, B].map((address) => ({ role: 'worker', id: 'w', address })));
      await passes(LONG_MS);
      assert.equal(workers.opened.length, 1);
      const [used] = workers.greeted;
      workers.at.delete(used ?? '');
      workers.last.close();
      await passes(MOMENT_MS);
      assert.deepEqual(connected(), [`w ${used === A ? B : A}`], 'main waits until it dials the other address anyway');
    }));

  it('is dialled at its new address alone where it was discovered, and at both where one was configured', () =>
    withWorkers(async ({ membership, workers, passes, connected, failing, discover }) => {
      membership.addConfigured([{ role: 'worker', id: 'w', address: A }]);
      discover('v', C);
      await passes(A_LITTLE_MS);
      assert.deepEqual(failing().sort(), [A, C]);
      workers.at.set(B, identity('w'));
      discover('w', B);
      discover('v', '10.0.0.4:1');
      await passes(A_LITTLE_MS);
      assert.deepEqual(connected(), [`w ${B}`]);
      assert.deepEqual(failing().sort(), [A, '10.0.0.4:1']);
    }));

  it('stays a problem where two daemons have the same id', () =>
    withWorkers(async ({ workers, passes, connected, failing, discover }) => {
      workers.at.set(A, identity('w'));
      workers.at.set(B, { ...identity('w'), bootId: 'of another daemon' });
      discover('w', A);
      await passes(A_LITTLE_MS);
      discover('w', B);
      await passes(LONG_MS);
      assert.deepEqual([connected(), failing()], [[`w ${A}`], [B]]);
      workers.at.delete(A);
      workers.last.close();
      await passes(MOMENT_MS);
      assert.deepEqual(connected(), [`w ${B}`], 'it takes the place that is free');
    }));

  it("gets a new stream when main's own host moves, and its old address is not dialled again", () =>
    withWorkers(async ({ membership, workers, passes, connected }) => {
      for (const address of [A, B]) workers.at.set(address, identity('own'));
      workers.at.set(C, identity('other'));
      membership.addOwn(A, 'own');
      membership.addConfigured([{ role: 'worker', id: 'other', address: C }]);
      await passes(A_LITTLE_MS);
      membership.moveOwn(A, 'own');
      await passes(A_LITTLE_MS);
      assert.deepEqual(
        [connected().sort(), workers.opened.length],
        [[`other ${C}`, `own ${A}`], 2],
        'it has not moved',
      );
      membership.moveOwn(B, 'own');
      await passes(A_LITTLE_MS);
      assert.deepEqual(connected().sort(), [`other ${C}`, `own ${B}`]);
      const asked = workers.asked.length;
      workers.at.delete(B);
      workers.last.close();
      await passes(LONG_MS);
      assert.ok(!workers.asked.slice(asked).includes(A));
      assert.deepEqual(connected(), [`other ${C}`]);
    }));
});

describe('main: the dialling of a worker', () => {
  it('happens at once when the worker advertises itself again, however long it was silent', () =>
    withWorkers(async ({ membership, workers, passes, connected, discover }) => {
      discover('w', A);
      membership.addConfigured([{ role: 'worker', id: 'v', address: B }]);
      await passes(LONG_MS);
      for (const [id, address] of [
        ['w', A],
        ['v', B],
      ] as const) {
        workers.at.set(address, identity(id));
        discover(id, address);
      }
      await passes(MOMENT_MS);
      assert.deepEqual(connected().sort(), [`v ${B}`, `w ${A}`]);
    }));

  it('happens again soon when the worker advertises itself and is not reachable yet', () =>
    withWorkers(async ({ workers, passes, connected, discover }) => {
      discover('w', A);
      await passes(LONG_MS);
      discover('w', A);
      await passes(MOMENT_MS);
      workers.at.set(A, identity('w'));
      await passes(A_LITTLE_MS);
      assert.deepEqual(connected(), [`w ${A}`]);
    }));

  it('never happens for a node of another cluster, a main, or an unwanted node', () =>
    withWorkers(
      async ({ membership, workers, passes }) => {
        membership.addDiscovered({ ...identity('w'), role: 'worker', authority: null, address: A, cluster: 'another' });
        membership.addDiscovered({ ...identity('m'), role: 'main', authority: null, address: B });
        membership.addDiscovered({ ...identity('w'), role: 'worker', authority: null, address: C });
        membership.addConfigured([{ role: 'worker', id: 'w', address: C }]);
        await passes(A_LITTLE_MS);
        assert.deepEqual(workers.asked, []);
      },
      { usesWorkers: false },
    ).then(() =>
      withWorkers(async ({ membership, workers, passes }) => {
        membership.addDiscovered({ ...identity('w'), role: 'worker', authority: null, address: A, cluster: 'another' });
        membership.addDiscovered({ ...identity('m'), role: 'main', authority: null, address: B });
        await passes(A_LITTLE_MS);
        assert.deepEqual(workers.asked, []);
      }),
    ));

  it('stops when the worker has joined and then not answered for a minute', () =>
    withWorkers(async ({ membership, workers, passes, failing }) => {
      assert.equal(
        membership.join(identity('w', 'ROLE_WORKER', A), { host: '10.0.0.1', caller: null }).kind,
        'welcome',
      );
      await passes(FORGET_JOINED_AFTER_MS - LONG_MS);
      assert.deepEqual(failing(), [A]);
      await passes(2 * LONG_MS);
      assert.deepEqual(failing(), []);
      const asked = workers.asked.length;
      await passes(LONG_MS);
      assert.equal(workers.asked.length, asked);
    }));

  it('stops when main is stopped', () =>
    withWorkers(async ({ membership, workers, passes, discover }) => {
      discover('w', A);
      await passes(A_LITTLE_MS);
      await membership.stop();
      const asked = workers.asked.length;
      discover('v', B);
      discover('w', A);
      await passes(LONG_MS);
      assert.equal(workers.asked.length, asked);
    }));
});

describe('main: stopping the membership', () => {
  it('opens no stream to a worker that has just named itself', () =>
    withWorkers(async ({ membership, workers, discover }) => {
      workers.at.set(A, identity('w'));
      discover('w', A);
      await membership.stop();
      assert.deepEqual([workers.asked, workers.opened.length], [[A], 0]);
    }));
});

describe('main: problems with workers', () => {
  it('end with their cause', () =>
    withWorkers(async ({ membership, workers, failing }) => {
      const stranger = { ...identity('w', 'ROLE_WORKER', A), cluster: 'another' };
      assert.equal(membership.join(stranger, { host: '10.0.0.1', caller: null }).kind, 'refusal');
      assert.deepEqual(failing(), [A]);
      workers.at.set(A, identity('w'));
      assert.equal(
        membership.join(identity('w', 'ROLE_WORKER', A), { host: '10.0.0.1', caller: null }).kind,
        'welcome',
      );
      assert.deepEqual(failing(), [], 'it is refused no more');
    }));

  it('age from the last contact with the worker: a more recent failure stays in the list', () =>
    withWorkers(
      async ({ membership, workers, passes, failing, discover }) => {
        discover('a', A);
        await passes(A_LITTLE_MS);
        workers.at.set(A, identity('a'));
        workers.at.set(B, identity('b'));
        discover('a', A);
        discover('b', B);
        await passes(A_LITTLE_MS);
        assert.deepEqual(failing(), []);
        const streams = new Map(workers.opened.map(({ address, stream }) => [address, stream]));
        for (const address of [B, A]) {
          workers.at.delete(address);
          streams.get(address)?.close();
          await passes(LONG_MS);
        }
        assert.deepEqual(failing().sort(), [A, B]);
        discover('c', C);
        await passes(A_LITTLE_MS);
        assert.deepEqual(failing().sort(), [A, C]);
        assert.ok(membership.problems().every(({ code }) => code === 'TIMEOUT'));
      },
      { maxKnownAddresses: 2 },
    ));

  it('last longer for a known worker than for any number of strangers on its host', () =>
    withWorkers(async ({ workers, passes, connected, discover }) => {
      const address = '10.0.0.9:7602';
      workers.at.set(address, identity('w'));
      discover('w', address);
      await passes(A_LITTLE_MS);
      workers.at.delete(address);
      workers.last.close();
      for (let number = 0; number < 300; number += 1) {
        discover(`stranger-${number}`, `10.0.0.9:${1 + number}`);
        await passes(500);
      }
      workers.at.set(address, identity('w'));
      await passes(LONG_MS);
      assert.deepEqual(connected(), [`w ${address}`]);
    }));
});

describe('main: a daemon that asks to join', () => {
  const refusalOf = (reply: JoinReply): string => (reply.kind === 'refusal' ? reply.refusal.message : '');

  it('is not dialled at an address that no other machine has', () =>
    withWorkers(
      async ({ membership, workers, passes }) => {
        const joinFrom = (host: string, address: string): string =>
          refusalOf(membership.join(identity('w', 'ROLE_WORKER', address), { host, caller: null }));
        for (const address of ['127.0.0.1:22', 'localhost:22', '169.254.169.254:80', '239.1.1.1:1', '0.1.2.3:4']) {
          assert.match(joinFrom('10.0.0.9', address), /which is no address of another machine/, address);
        }
        await passes(A_LITTLE_MS);
        assert.deepEqual(workers.asked, [], 'nothing was dialled');
        assert.equal(joinFrom('10.0.0.9', '10.1.0.9:7601'), '', 'it may have several networks');
        assert.equal(joinFrom('10.0.0.1', '127.0.0.1:7602'), '', 'it is on this machine');
        assert.equal(joinFrom('::ffff:127.0.0.1', '127.0.0.1:7603'), '');
        assert.equal(joinFrom('10.0.0.9', ':7604'), '');
        await passes(A_LITTLE_MS);
        assert.deepEqual(workers.asked.slice(0, 4).sort(), [
          '10.0.0.9:7604',
          '10.1.0.9:7601',
          '127.0.0.1:7602',
          '127.0.0.1:7603',
        ]);
      },
      { interfaces: { addresses: [{ name: 'eth0', address: '10.0.0.1', internal: false }] } },
    ));

  it('is refused in words when its host asks too often, and other hosts are not', () =>
    withWorkers(async ({ membership, passes }) => {
      const joinFrom = (host: string, id?: string): string => {
        const caller = id === undefined ? null : ({ cluster: 'demo', role: 'worker', id } as const);
        return refusalOf(membership.join(identity('w', 'ROLE_WORKER', ':7601'), { host, caller }));
      };
      for (let asked = 0; asked < GREETINGS_OF_PEER.burst; asked += 1) assert.equal(joinFrom('10.0.0.9'), '');
      assert.match(joinFrom('10.0.0.9'), /10\.0\.0\.9 asks to join too often/);
      assert.equal(joinFrom('10.0.0.8'), '');
      assert.doesNotMatch(joinFrom('10.0.0.9', 'certified'), /too often/);
      for (let asked = 0; asked < GREETINGS_OF_PEER.burst; asked += 1) joinFrom(`10.0.1.${asked % 200}`, 'certified');
      assert.match(joinFrom('10.0.2.1', 'certified'), /worker certified asks to join too often/);
      await passes(1000);
      assert.equal(joinFrom('10.0.0.9'), '');
    }));
});

describe('main: tensors of a worker', () => {
  it('are taken after its welcome, and not of one that refuses', () =>
    withWorkers(async ({ workers, passes, discover }) => {
      workers.at.set(A, identity('w'));
      discover('w', A);
      workers.refusing.set(B, { code: 'NODE_REFUSED', message: 'not you' });
      workers.at.set(B, identity('x'));
      discover('x', B);
      await passes(A_LITTLE_MS);
      const taken = (at: string): boolean[] =>
        workers.opened.filter(({ address }) => address === at).map(({ stream }) => stream.takesTensors);
      assert.deepEqual(taken(A), [true]);
      assert.ok(taken(B).length > 0 && !taken(B).includes(true));
    }));
});

describe('main: an epoch in a welcome', () => {
  it('from a placement of an earlier main makes the next placements newer', () =>
    withWorkers(async ({ roster, workers, passes, discover }) => {
      workers.at.set(A, identity('w'));
      workers.highestEpoch = 5000;
      discover('w', A);
      await passes(A_LITTLE_MS);
      assert.equal(roster.placement?.epoch, 5001);
    }));
});
