import assert from 'node:assert/strict';
import { MAX_DAMAGE_ANSWERS } from '../../main-node/cluster/damaged-workers.js';
import { Roster } from '../../main-node/cluster/roster.js';
import { WorkerLink } from '../../main-node/cluster/worker-link.js';
import { emptyNodeStatus } from '../../shared/wire/node-status.js';
import type { NodeIdentity, WorkerReply, WorkerRequest } from '../../shared/wire/messages.js';
import { MemoryStream } from '../integration/harness/memory-stream.js';
import { RUNTIME } from '../wall.js';
import { GROUPING } from './plain-shape.js';
import { silentLog } from './worker-test-slots.js';
import { plainIdentity } from './plain-identity.js';

const SHAPE = { expertLayers: 4, experts: 8, expertsPerToken: 2 };

function worker(id: string): WorkerLink {
  const identity: NodeIdentity = plainIdentity({ id, cluster: 'c', bootId: id, address: '' });
  const stream = new MemoryStream<WorkerRequest, WorkerReply>();
  const settings = { hiddenSize: 4, experts: 100, executeTimeoutMs: 1000, runtime: RUNTIME };
  return new WorkerLink(identity, `${id}:1`, stream, settings, silentLog);
}

const placedIds = (roster: Roster): string[] => roster.placement?.workers.map(({ id }) => id) ?? [];
const tell = (roster: Roster, link: WorkerLink, damagedExperts: number): void => {
  link.receive({ kind: 'status', status: { ...emptyNodeStatus(link.identity), damagedExperts } });
  roster.workerReported(link);
};

describe('main: workers whose pack is damaged', () => {
  let roster: Roster;
  let whole: WorkerLink;
  let damaged: WorkerLink;

  beforeEach(async () => {
    roster = new Roster(SHAPE, GROUPING, 100, RUNTIME, silentLog);
    whole = worker('whole');
    damaged = worker('damaged');
    for (const link of [whole, damaged]) roster.addWorker(link);
    await roster.waitForPlacement(1000, new AbortController().signal);
  });

  afterEach(() => roster.stop());

  const answer = (link: WorkerLink, times: number): void => {
    for (let time = 0; time < times; time += 1) roster.workerDamaged(link, 'a checksum fails');
  };

  it('leave the placement after a number of answers that report damage, and status shows it', () => {
    answer(damaged, MAX_DAMAGE_ANSWERS - 1);
    assert.deepEqual([placedIds(roster), roster.problems()], [['damaged', 'whole'], []]);
    answer(damaged, 1);
    assert.deepEqual(placedIds(roster), ['whole']);
    const [problem] = roster.problems();
    assert.deepEqual([problem?.id, problem?.code, problem?.address], ['damaged', 'PACK_CORRUPT', 'damaged:1']);
    assert.match(problem?.message ?? '', /^a checksum fails; its copy of the pack is damaged/);
    assert.equal(roster.connectedWorkers().length, 2, 'it is connected all the same');
  });

  it('come back when they report that no damage is left', async () => {
    answer(damaged, MAX_DAMAGE_ANSWERS);
    tell(roster, damaged, 2);
    assert.deepEqual(placedIds(roster), ['whole']);
    tell(roster, damaged, 0);
    await roster.waitForChange(1000, new AbortController().signal);
    assert.deepEqual([placedIds(roster), roster.problems()], [['damaged', 'whole'], []]);
  });

  it('start at zero again when the damaged experts could be loaded', () => {
    answer(damaged, MAX_DAMAGE_ANSWERS - 1);
    tell(roster, damaged, 0);
    answer(damaged, MAX_DAMAGE_ANSWERS - 1);
    assert.deepEqual(placedIds(roster), ['damaged', 'whole']);
  });

  it('stay where no other worker exists: an error with a reason is better than no worker', () => {
    roster.removeWorker(whole, 'test');
    answer(damaged, MAX_DAMAGE_ANSWERS);
    assert.deepEqual(placedIds(roster), ['damaged']);
    assert.equal(roster.problems().length, 1);
  });

  it('are forgotten when they leave, whether placed or not', () => {
    answer(damaged, MAX_DAMAGE_ANSWERS);
    const { epoch } = roster;
    roster.removeWorker(damaged, 'test');
    assert.deepEqual([roster.epoch, roster.problems(), roster.connectedWorkers().length], [epoch, [], 1]);
  });
});
