import assert from 'node:assert/strict';
import { OtherArithmetic } from '../../main-node/cluster/other-arithmetic.js';
import { Roster } from '../../main-node/cluster/roster.js';
import { WorkerLink } from '../../main-node/cluster/worker-link.js';
import { NEWEST_PROTOCOL_VARIABLE, versionsIn } from '../../engine/environment/node-environment.js';
import { checkPeer } from '../../shared/transport/peer-check.js';
import { ARITHMETIC_VERSION, NEWEST_PROTOCOL, OLDEST_PROTOCOL } from '../../shared/wire/limits.js';
import type { NodeIdentity, WorkerReply, WorkerRequest } from '../../shared/wire/messages.js';
import {
  arithmeticVersionOf,
  newestProtocolOf,
  protocolsOf,
  RELEASE_VERSIONS,
  spokenProtocol,
} from '../../shared/wire/versions.js';
import { problemOf } from '../../engine/fetching/await-main.js';
import { MemoryStream } from '../integration/harness/memory-stream.js';
import { RUNTIME } from '../wall.js';
import { plainIdentity } from './plain-identity.js';
import { GROUPING } from './plain-shape.js';
import { silentLog } from './worker-test-slots.js';
import { statedArithmetic } from '../../main-node/rpc/inference-service.js';
import { emptyNodeStatus, withoutUnstated } from '../../shared/wire/node-status.js';

/** A node that speaks these protocols; 0: it is of a release that states no newest one. */
const speaks = (protocolVersion: number, newestProtocol: number): NodeIdentity =>
  plainIdentity({ id: 'n', protocolVersion, newestProtocol });

describe('the protocol of a conversation', () => {
  it('is the newest that both speak, whoever asks', () => {
    const cases: [[number, number], [number, number], number | null][] = [
      [[6, 0], [6, 0], 6],
      [[6, 0], [6, 7], 6],
      [[6, 7], [6, 7], 7],
      [[6, 7], [7, 8], 7],
      [[6, 7], [6, 9], 7],
      [[6, 7], [8, 9], null],
      [[6, 0], [7, 8], null],
      [[5, 0], [6, 7], null],
    ];
    for (const [here, there, spoken] of cases) {
      const [own, peer] = [speaks(...here), speaks(...there)];
      assert.equal(spokenProtocol(own, peer), spoken, `${here.join(' to ')} with ${there.join(' to ')}`);
      assert.equal(spokenProtocol(peer, own), spoken);
      assert.equal(checkPeer(own, peer) === null, spoken !== null);
    }
  });

  it('is none with a node whose newest protocol is older than its oldest', () => {
    assert.equal(spokenProtocol(speaks(6, 5), speaks(6, 7)), null);
  });

  it('that does not exist is explained with what both sides speak', () => {
    const newer = { ...speaks(8, 9), release: '0.9.0' };
    const message = checkPeer(speaks(6, 7), newer)?.message ?? '';
    assert.match(
      message,
      /the protocol version is "8 to 9" there and "6 to 7" here.*"0\.9\.0" there.*update the older/,
    );
    const main = { ...newer, role: 'ROLE_MAIN', cluster: 'c', packDigest: 'd'.repeat(64) } as const;
    assert.match(
      problemOf(main, { cluster: 'c' }) ?? '',
      /speaks protocol 8 to 9, this node 6: update odmoe on the older/,
    );
  });

  it('of this release and of release 0.2 is one that 0.2 takes: it compares the oldest protocol for equality', () => {
    assert.equal(OLDEST_PROTOCOL, 6);
    assert.equal(spokenProtocol(speaks(6, 0), { protocolVersion: OLDEST_PROTOCOL, ...RELEASE_VERSIONS }), 6);
  });

  it('is shown as one number where a node speaks one', () => {
    assert.deepEqual(
      [protocolsOf(speaks(6, 0)), protocolsOf(speaks(6, 6)), protocolsOf(speaks(6, 7))],
      ['6', '6', '6 to 7'],
    );
    assert.deepEqual([newestProtocolOf(speaks(6, 0)), newestProtocolOf(speaks(6, 8))], [6, 8]);
  });
});

describe('the versions of a daemon', () => {
  it('are those of its release, and a test may raise the newest protocol', () => {
    assert.deepEqual(versionsIn({}), { newestProtocol: NEWEST_PROTOCOL, arithmeticVersion: ARITHMETIC_VERSION });
    const raised = versionsIn({ [NEWEST_PROTOCOL_VARIABLE]: String(NEWEST_PROTOCOL + 1) });
    assert.deepEqual(raised, { newestProtocol: NEWEST_PROTOCOL + 1, arithmeticVersion: ARITHMETIC_VERSION });
    for (const wrong of ['1', 'seven', '-7', '7.5', '70000']) {
      assert.throws(
        () => versionsIn({ [NEWEST_PROTOCOL_VARIABLE]: wrong }),
        { code: 'USAGE', message: /unset it/ },
        wrong,
      );
    }
  });

  it('without a stated arithmetic have that of release 0.2', () => {
    assert.deepEqual(
      [{}, { arithmeticVersion: 0 }, { arithmeticVersion: 3 }].map((stated) =>
        arithmeticVersionOf({ protocolVersion: 6, ...stated }),
      ),
      [1, 1, 3],
    );
  });
});

describe('main: workers of another arithmetic', () => {
  const shape = { expertLayers: 4, experts: 8, expertsPerToken: 2 };
  const never = new AbortController().signal;
  let roster: Roster;

  const worker = (id: string, arithmeticVersion: number, partialPack = false): WorkerLink => {
    const stream = new MemoryStream<WorkerRequest, WorkerReply>();
    const limits = { hiddenSize: 4, experts: 100, executeTimeoutMs: 1000, runtime: RUNTIME };
    const identity = plainIdentity({ id, bootId: `boot of ${id}`, arithmeticVersion, release: '0.9.0' });
    return new WorkerLink(identity, `${id}:1`, stream, limits, silentLog, partialPack);
  };
  const placedIds = (): string[] => roster.placement?.workers.map(({ id }) => id) ?? [];

  beforeEach(() => {
    roster = new Roster(shape, GROUPING, 100, RUNTIME, silentLog, undefined, 2);
  });
  afterEach(() => roster.stop());

  it('are connected and not placed, and the status says why and what to update', async () => {
    for (const link of [worker('same', 2), worker('older', 1), worker('newer', 3, true)]) roster.addWorker(link);
    await roster.waitForPlacement(1000, never);
    assert.deepEqual(placedIds(), ['same']);
    assert.equal(roster.connectedWorkers().length, 3);
    const problems = roster.problems().map(({ id, address, code, message }) => [id, address, code, message] as const);
    assert.deepEqual(
      problems.map(([id, address, code]) => [id, address, code]),
      [
        ['older', 'older:1', 'ARITHMETIC_DIFFERS'],
        ['newer', 'newer:1', 'ARITHMETIC_DIFFERS'],
      ],
    );
    assert.match(
      problems[0]?.[3] ?? '',
      /arithmetic 1 \(odmoe 0\.9\.0\) and main by arithmetic 2.*updated on the worker$/,
    );
    assert.match(problems[1]?.[3] ?? '', /arithmetic 3.*updated on main$/);
  });

  it('are named to who asks while there are no others', async () => {
    roster.addWorker(worker('older', 0));
    await assert.rejects(roster.waitForPlacement(1, never), {
      code: 'NO_WORKERS',
      message: /older computes by arithmetic 1/,
    });
  });

  it('are forgotten when they leave, and placed when they come back updated', async () => {
    const old = worker('w', 1);
    roster.addWorker(old);
    roster.removeWorker(old, 'it was stopped');
    assert.deepEqual([roster.problems(), roster.connectedWorkers()], [[], []]);
    roster.addWorker(worker('w', 2));
    await roster.waitForPlacement(1000, never);
    assert.deepEqual(placedIds(), ['w']);
  });

  it('were set aside once', () => {
    const others = new OtherArithmetic(2);
    const link = worker('w', 1);
    assert.deepEqual([others.joined(worker('s', 2)), others.joined(link)], [false, true]);
    assert.deepEqual([others.remove(link), others.remove(link)], [true, false]);
  });
});

describe('clients of release 0.2, which cannot skip a text that they do not know, not even an empty one,', () => {
  it('get no arithmetic that is usual', () => {
    assert.deepEqual(['exact', '', 'fast'].map(statedArithmetic), [{}, {}, { arithmetic: 'fast' }]);
  });

  it('get an identity without the texts that its node has left out', () => {
    const decoded = plainIdentity({ id: 'n', quality: '', slicesDigest: '' });
    const { identity } = withoutUnstated(emptyNodeStatus(decoded));
    assert.deepEqual([identity.id, 'quality' in identity, 'slicesDigest' in identity], ['n', false, false]);
    const sliced = { quality: 'sliced(8,4,low)', slicesDigest: 'd' };
    const kept = withoutUnstated(emptyNodeStatus(plainIdentity({ id: 'n', ...sliced }))).identity;
    assert.deepEqual({ quality: kept.quality, slicesDigest: kept.slicesDigest }, sliced);
  });
});
