import assert from 'node:assert/strict';
import { MAX_DISTRUSTED } from '../../main-node/cluster/distrusted-workers.js';
import { Roster } from '../../main-node/cluster/roster.js';
import { WorkerLink } from '../../main-node/cluster/worker-link.js';
import type { NodeIdentity, WorkerReply, WorkerRequest } from '../../shared/wire/messages.js';
import { MemoryStream } from '../integration/harness/memory-stream.js';
import { RUNTIME } from '../wall.js';
import { GROUPING } from './plain-shape.js';
import { silentLog } from './worker-test-slots.js';
import { plainIdentity } from './plain-identity.js';

const SHAPE = { expertLayers: 4, experts: 8, expertsPerToken: 2 };
const WHY = 'it gave NaN';
const never = new AbortController().signal;

class TestWorker {
  readonly stream = new MemoryStream<WorkerRequest, WorkerReply>();
  readonly link: WorkerLink;

  constructor(id: string, bootId = `boot of ${id}`) {
    const identity: NodeIdentity = plainIdentity({ id, cluster: 'c', bootId, address: '' });
    const settings = { hiddenSize: 1, experts: 100, executeTimeoutMs: 1000, runtime: RUNTIME };
    this.link = new WorkerLink(identity, `${id}:1`, this.stream, settings, silentLog);
  }
}

describe('main: distrusted workers', () => {
  let roster: Roster;
  const notified: string[] = [];
  const honest = new TestWorker('honest');
  let liar: TestWorker;

  const placedIds = (): string[] => roster.placement?.workers.map(({ id }) => id) ?? [];
  const problemIds = (): string[] => roster.problems().map(({ id }) => id);

  beforeEach(async () => {
    notified.length = 0;
    liar = new TestWorker('liar');
    const nothing = (): void => undefined;
    roster = new Roster(SHAPE, GROUPING, 100, RUNTIME, silentLog, {
      changed: nothing,
      lost: nothing,
      distrusted: (id) => notified.push(`${id}, placed: ${placedIds().join()}`),
    });
    for (const { link } of [honest, liar]) roster.addWorker(link);
    await roster.waitForPlacement(1000, never);
  });

  afterEach(() => roster.stop());

  it('leave the placement, with a reason in the log, and stay connected', () => {
    roster.distrust(liar.link, WHY);
    assert.deepEqual([placedIds(), notified], [['honest'], ['liar, placed: honest']]);
    const [problem] = roster.problems();
    assert.deepEqual([problem?.id, problem?.code, problem?.address], ['liar', 'WORKER_DISTRUSTED', 'liar:1']);
    assert.match(problem?.message ?? '', /^it gave NaN; it is asked no more until it is started again/);
    assert.equal(roster.connectedWorkers().length, 2);
    roster.distrust(liar.link, WHY);
    assert.equal(notified.length, 1, 'once is enough');
  });

  it('leave the placement also where they are the last: no answer is better than a wrong one', () => {
    roster.removeWorker(honest.link, 'test');
    roster.distrust(liar.link, WHY);
    assert.equal(roster.placement, null);
  });

  it('lose their pending work, and later answers of theirs are ignored', async () => {
    const work = {
      pass: { sequence: 1, position: 0 },
      rows: [{ sequence: 1, position: 0, rows: 1 }],
      layer: 0,
      hidden: new Uint8Array(4),
      experts: [{ expert: 1, rows: [], last: false }],
    };
    let taken = 0;
    const owed = liar.link.execute(work, 101, () => (taken += 1), never);
    roster.distrust(liar.link, WHY);
    await assert.rejects(owed, { code: 'WORKER_LOST', message: /it gave NaN/ });
    const times = {
      wasLoaded: true,
      stallUs: 0,
      executeUs: 0,
      loadUs: 0,
      loadedBeforeUs: 0,
      begunUs: 0,
      answeredUs: 0,
    };
    liar.link.receive({
      kind: 'result',
      result: {
        requestId: 1,
        epoch: 101,
        hiddenSize: 1,
        dtype: 'TENSOR_TYPE_F32',
        last: true,
        kept: null,
        experts: [{ ...times, calledUs: 0, endedUs: 0, expert: 1, rows: 1, output: new Uint8Array(4), failure: null }],
      },
    });
    assert.deepEqual([taken, liar.link.outstanding], [0, 0]);
  });

  it('receive the end of sequences, as they may hold data of them', () => {
    roster.distrust(liar.link, WHY);
    roster.endSequence(7);
    for (const { stream } of [honest, liar])
      assert.ok(stream.sent.some((message) => message.kind === 'end' && message.end.sequence === 7));
  });

  it('are not placed when they reconnect, and are placed after a restart', async () => {
    roster.distrust(liar.link, WHY);
    roster.removeWorker(liar.link, 'test');
    assert.deepEqual(problemIds(), ['liar'], 'also while it is away');
    const back = new TestWorker('liar');
    roster.addWorker(back.link);
    await roster.waitForChange(50, never);
    assert.deepEqual([placedIds(), problemIds()], [['honest'], ['liar']]);
    roster.removeWorker(back.link, 'test');
    roster.addWorker(new TestWorker('liar', 'another boot').link);
    await roster.waitForChange(50, never);
    assert.deepEqual([placedIds(), problemIds()], [['honest', 'liar'], []]);
  });

  it('are found after they have disconnected: the rows go, and they are not placed when they are back', async () => {
    roster.removeWorker(liar.link, 'test');
    roster.distrust(liar.link, WHY);
    assert.deepEqual([notified, problemIds()], [['liar, placed: honest'], ['liar']]);
    roster.addWorker(new TestWorker('liar').link);
    await roster.waitForChange(50, never);
    assert.deepEqual(placedIds(), ['honest']);
  });

  it('are found by an earlier connection, and leave the placement under the present one', async () => {
    roster.removeWorker(liar.link, 'test');
    const back = new TestWorker('liar');
    roster.addWorker(back.link);
    await roster.waitForChange(50, never);
    roster.distrust(liar.link, WHY);
    assert.deepEqual([placedIds(), notified.length, roster.connectedWorkers().length], [['honest'], 1, 2]);
    roster.distrust(back.link, WHY);
    assert.equal(notified.length, 1, 'once is enough');
  });

  it('that were started again since lose their earlier rows, and stay placed', async () => {
    roster.removeWorker(liar.link, 'test');
    roster.addWorker(new TestWorker('liar', 'another boot').link);
    await roster.waitForChange(50, never);
    roster.distrust(liar.link, WHY);
    assert.deepEqual([placedIds(), notified.length, problemIds()], [['honest', 'liar'], 1, []]);
  });

  it('are remembered up to a bound', () => {
    for (let number = 0; number < MAX_DISTRUSTED + 3; number += 1) {
      const { link } = new TestWorker(`liar ${number}`);
      roster.addWorker(link);
      roster.distrust(link, WHY);
      roster.removeWorker(link, 'test');
    }
    assert.equal(problemIds().length, MAX_DISTRUSTED);
  });
});
