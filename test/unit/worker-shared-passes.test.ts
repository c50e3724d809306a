import assert from 'node:assert/strict';
import type { Execute, ExpertResult, PassLayer, RowRange } from '../../shared/wire/messages.js';
import type { WorkerReply } from '../../shared/wire/messages.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { ExpertExecutor, BUNDLED_ROWS_LIMIT } from '../../worker-node/executor/expert-executor.js';
import type { ExpertService } from '../../worker-node/executor/expert-service.js';
import type { SlotAction } from '../../worker-node/loader/slot-events.js';
import { SlotSchedule } from '../../worker-node/loader/slot-schedule.js';
import { TestSlots, settle, silentLog, testService } from './worker-test-slots.js';
import { plainExecute, plainPrediction } from './wire-messages.js';
import { FROM_STORAGE } from '../../native/index.js';
import { perPart } from '../../shared/model/expert-parts.js';

const run = (sequence: number, position: number, rows = 1): RowRange => ({ sequence, position, rows });
/** A pass of sequence 1 at position 5, which rows of others may have joined. */
const layerOf = (layer: number, ...joined: RowRange[]): PassLayer => ({
  pass: { sequence: 1, position: 5 },
  rows: [run(1, 5), ...joined],
  layer,
});
const kinds = (actions: SlotAction[]): string[] =>
  actions.map((action) =>
    'slot' in action ? `${action.kind} ${action.slot}` : `${action.kind} ticket ${action.ticket}`,
  );
const loaded = (schedule: SlotSchedule, slot = 0): SlotAction[] =>
  schedule.handle({ kind: 'loadSettled', slot, outcome: 'loaded', cached: perPart(() => false) });

describe('worker: rows of several sequences in one pass', () => {
  it('keep an expert until the last of them has ended', () => {
    const schedule = new SlotSchedule(1);
    schedule.handle({ kind: 'predict', source: 'shadow', ...layerOf(0, run(2, 9)), experts: [3] });
    assert.deepEqual(schedule.openCounts, { expectations: 1, sequences: 2 });
    assert.deepEqual(schedule.handle({ kind: 'end', sequence: 1 }), []);
    assert.deepEqual(kinds(schedule.handle({ kind: 'end', sequence: 2 })), ['cancelLoad 0']);
    assert.deepEqual(schedule.openCounts, { expectations: 0, sequences: 0 });
  });

  it('take over the predictions for one of them alone', () => {
    const schedule = new SlotSchedule(1);
    schedule.handle({
      kind: 'predict',
      source: 'shadow',
      pass: { sequence: 2, position: 9 },
      rows: [run(2, 9)],
      layer: 0,
      experts: [3],
    });
    loaded(schedule);
    const actions = schedule.handle({ kind: 'execute', ticket: 1, ...layerOf(0, run(2, 9)), expert: 3, last: true });
    assert.deepEqual(actions, [{ kind: 'execute', slot: 0, ticket: 1, wasLoaded: true }]);
    assert.equal(schedule.counters.unannouncedLoads, 0);
  });

  it('cause no second load where one of them is predicted alone afterwards', () => {
    const schedule = new SlotSchedule(2);
    schedule.handle({ kind: 'predict', source: 'main', ...layerOf(0, run(2, 9)), experts: [3] });
    const alone = { pass: { sequence: 2, position: 9 }, rows: [run(2, 9)], layer: 0 };
    assert.deepEqual(schedule.handle({ kind: 'predict', source: 'shadow', ...alone, experts: [3] }), []);
    assert.deepEqual(kinds(schedule.handle({ kind: 'predict', source: 'shadow', ...alone, experts: [3, 4] })), [
      'load 1',
    ]);
    assert.deepEqual(schedule.openCounts, { expectations: 2, sequences: 2 });
  });

  it('are taken back row by row: the expert goes with its last row', () => {
    const schedule = new SlotSchedule(1);
    schedule.handle({ kind: 'predict', source: 'shadow', ...layerOf(0, run(2, 9, 2)), experts: [3] });
    assert.deepEqual(schedule.handle({ kind: 'restart', sequence: 2, position: 10 }), []);
    assert.deepEqual(schedule.handle({ kind: 'restart', sequence: 1, position: 5 }), []);
    assert.deepEqual(kinds(schedule.handle({ kind: 'restart', sequence: 2, position: 9 })), ['cancelLoad 0']);
  });

  it('show the progress of main in each of their sequences', () => {
    const schedule = new SlotSchedule(2);
    schedule.handle({
      kind: 'predict',
      source: 'shadow',
      pass: { sequence: 2, position: 8 },
      rows: [run(2, 8)],
      layer: 3,
      experts: [1],
    });
    assert.deepEqual(kinds(schedule.handle({ kind: 'release', ...layerOf(0, run(2, 9)), experts: [7] })), [
      'cancelLoad 0',
    ]);
    const late = { pass: { sequence: 2, position: 8 }, rows: [run(2, 8)], layer: 3, experts: [1] };
    schedule.handle({ kind: 'predict', source: 'shadow', ...late });
    assert.equal(schedule.counters.latePredictions, 1);
    const next = { pass: { sequence: 2, position: 9 }, rows: [run(2, 9)], layer: 0, experts: [1] };
    schedule.handle({ kind: 'predict', source: 'shadow', ...next });
    assert.equal(schedule.counters.latePredictions, 1, 'its own pass may begin where it has joined another');
  });

  it('drop the waiting work of a sequence in a pass that it has left behind', () => {
    const schedule = new SlotSchedule(1);
    schedule.handle({ kind: 'predict', source: 'shadow', ...layerOf(0, run(2, 9)), experts: [3] });
    schedule.handle({ kind: 'end', sequence: 1 });
    const next = { pass: { sequence: 3, position: 4 }, rows: [run(3, 4), run(2, 10)], layer: 0 };
    assert.deepEqual(kinds(schedule.handle({ kind: 'release', ...next, experts: [] })), ['cancelLoad 0']);
  });

  it('that end while an expert runs leave nothing behind, though main had announced more mini-batches', () => {
    const schedule = new SlotSchedule(1);
    schedule.handle({ kind: 'execute', ticket: 1, ...layerOf(0), expert: 3, last: false });
    loaded(schedule);
    schedule.handle({ kind: 'end', sequence: 1 });
    assert.deepEqual(kinds(schedule.handle({ kind: 'executeSettled', slot: 0 })), ['evict 0']);
    assert.deepEqual(schedule.openCounts, { expectations: 0, sequences: 0 });
  });
});

/** Three rows of two sequences, and experts that take some of them. */
const mixed = (fields: Partial<Execute> = {}): Execute => ({
  ...plainExecute({ requestId: 7, layer: 0, expert: 0, hiddenSize: 1 }),
  rows: [run(1, 0, 2), run(2, 6)],
  hidden: Buffer.from([1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]),
  experts: [
    { expert: 10, rows: [], last: true },
    { expert: 20, rows: [0, 2], last: true },
  ],
  ...fields,
});
const parts = (replies: WorkerReply[]): (readonly ExpertResult[])[] =>
  replies.map((reply) => (reply.kind === 'result' ? reply.result.experts : []));
const lasts = (replies: WorkerReply[]): boolean[] =>
  replies.map((reply) => reply.kind === 'result' && reply.result.last);

describe('worker: an execute of several experts', () => {
  const execute = (service: ExpertService, request: Execute): WorkerReply[] => {
    const replies: WorkerReply[] = [];
    service.execute(request, (reply) => replies.push(reply));
    return replies;
  };

  it('gives each expert its rows, and answers ready experts together', async () => {
    const slots = new TestSlots(2);
    const service = testService(slots, 4);
    service.expect('shadow', plainPrediction({ layer: 0, experts: [10, 20] }));
    for (const slot of [0, 1]) await slots.endLoad(slot);
    const replies = execute(service, mixed());
    await settle();
    assert.deepEqual(lasts(replies), [true]);
    const [first, second] = parts(replies)[0] ?? [];
    assert.deepEqual(
      [first?.expert, first?.rows, [...(first?.output ?? [])]],
      [10, 3, [11, 11, 11, 11, 12, 12, 12, 12, 13, 13, 13, 13]],
    );
    assert.deepEqual(
      [second?.expert, second?.rows, [...(second?.output ?? [])]],
      [20, 2, [21, 21, 21, 21, 23, 23, 23, 23]],
    );
    const none = { executes: 0, heldBytes: 0, underWay: 0, slotsInUse: 0, expectations: 0, sequences: 0 };
    assert.deepEqual(service.openCounts, none);
  });

  it('answers early for experts that need not wait for a load', async () => {
    const slots = new TestSlots(2);
    const service = testService(slots, 4);
    const replies = execute(service, mixed());
    await slots.endLoad(1);
    assert.deepEqual(
      [parts(replies).map((part) => part.map(({ expert }) => expert)), lasts(replies)],
      [[[20]], [false]],
    );
    await slots.endLoad(0);
    assert.deepEqual(
      parts(replies).map((part) => part.map(({ expert }) => expert)),
      [[20], [10]],
    );
    assert.deepEqual(lasts(replies), [false, true]);
  });

  it('reports an expert that cannot be loaded, and runs the others', async () => {
    const slots = new TestSlots(2);
    const service = testService(slots, 4);
    const replies = execute(service, mixed());
    await slots.endLoad(0, new OdmoeError('PACK_CORRUPT', 'a checksum'));
    await slots.endLoad(1);
    assert.deepEqual(
      parts(replies)
        .flat()
        .map(({ expert, failure }) => [expert, failure?.code ?? null]),
      [
        [10, 'PACK_CORRUPT'],
        [20, null],
      ],
    );
  });
});

describe('worker: the open work of an executor', () => {
  /** Executes of 4 bytes, one expert each, that end at once. */
  const executor = (limits: {
    experts: number;
    bytes: number;
  }): { held: ExpertExecutor; run: (id: number) => Promise<void> } => {
    const slots = new TestSlots(1);
    const held = new ExpertExecutor(slots, 4, () => 0, silentLog, undefined, limits);
    const loading = slots.load(0, slots.register({ expert: 1 }), FROM_STORAGE);
    const ready = slots.endLoad(0).then(() => loading);
    return {
      held,
      run: async (id) => {
        await ready;
        held.hold(id, plainExecute({ requestId: id, layer: 0, expert: 1 }), () => undefined);
        await held.run(id, 0, true, { endedMs: 0, tookMs: 0 });
      },
    };
  };

  it('is released with each answer, so that no number of executes fills it', async () => {
    const { held, run } = executor({ experts: 1, bytes: 4 });
    for (let id = 1; id <= 20; id += 1) await run(id);
    assert.deepEqual(held.held, { experts: 0, bytes: 0 });
  });

  it('is as much as the limits name, and not one expert or byte more', () => {
    const { held } = executor({ experts: 2, bytes: 12 });
    held.hold(1, plainExecute({ layer: 0, expert: 1 }), () => undefined);
    assert.throws(() => held.hold(2, mixed(), () => undefined), { code: 'QUEUE_FULL' });
    held.hold(2, plainExecute({ layer: 0, expert: 2, rows: 2, hidden: Buffer.alloc(8) }), () => undefined);
    assert.throws(() => held.hold(3, plainExecute({ layer: 0, expert: 3 }), () => undefined), { code: 'QUEUE_FULL' });
    assert.deepEqual(held.held, { experts: 2, bytes: 12 });
    const { held: bytes } = executor({ experts: 9, bytes: 11 });
    assert.throws(() => bytes.hold(1, mixed(), () => undefined), { code: 'QUEUE_FULL' });
    held.failAll(new OdmoeError('CANCELLED', 'enough'));
    assert.deepEqual(held.held, { experts: 0, bytes: 0 });
  });

  it('delays no output that is larger than the cost of its own message', async () => {
    const slots = new TestSlots(2);
    const service = testService(slots, BUNDLED_ROWS_LIMIT);
    const rows = [run(1, 0, BUNDLED_ROWS_LIMIT)];
    const hidden = Buffer.alloc(4 * BUNDLED_ROWS_LIMIT);
    service.expect('shadow', plainPrediction({ layer: 0, experts: [10, 20] }));
    for (const slot of [0, 1]) await slots.endLoad(slot);
    const replies: WorkerReply[] = [];
    const experts = [10, 20].map((expert) => ({ expert, rows: [], last: true }));
    service.execute(mixed({ rows, hidden, experts }), (reply) => replies.push(reply));
    await settle();
    assert.deepEqual(lasts(replies), [false, true]);
  });
});
