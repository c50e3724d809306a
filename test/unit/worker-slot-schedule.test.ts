import assert from 'node:assert/strict';
import { passOfSequence } from '../../shared/wire/pass-rows.js';
import { IDLE_SEQUENCE_EXECUTES, MAX_FOLLOWED_SEQUENCES } from '../../worker-node/loader/main-progress.js';
import type { LoadEnd, SlotAction } from '../../worker-node/loader/slot-events.js';
import { QUEUED_PREDICTIONS_LIMIT } from '../../shared/wire/limits.js';
import { SlotSchedule } from '../../worker-node/loader/slot-schedule.js';
import { perPart } from '../../shared/model/expert-parts.js';

const predict = (schedule: SlotSchedule, layer: number, experts: number[], position = 5, sequence = 1): SlotAction[] =>
  schedule.handle({ kind: 'predict', source: 'shadow', ...passOfSequence(sequence, position, 1), layer, experts });
const announce = (schedule: SlotSchedule, layer: number, experts: number[], position = 5): SlotAction[] =>
  schedule.handle({ kind: 'predict', source: 'main', ...passOfSequence(1, position, 1), layer, experts });
const release = (schedule: SlotSchedule, layer: number, experts: number[], sequence = 1): SlotAction[] =>
  schedule.handle({ kind: 'release', ...passOfSequence(sequence, 5, 1), layer, experts });
const settled = (schedule: SlotSchedule, slot: number, outcome: LoadEnd['outcome']): SlotAction[] =>
  schedule.handle({ kind: 'loadSettled', slot, outcome, cached: perPart(() => false) });
const loaded = (schedule: SlotSchedule, slot = 0): SlotAction[] => settled(schedule, slot, 'loaded');
const ran = (schedule: SlotSchedule, slot = 0): SlotAction[] => schedule.handle({ kind: 'executeSettled', slot });
const endTurn = (schedule: SlotSchedule): SlotAction[] => {
  assert.ok(schedule.wantsTurnEnd);
  return schedule.handle({ kind: 'turnEnded' });
};
const endDecisionWait = (schedule: SlotSchedule): SlotAction[] => {
  assert.ok(schedule.wantsDecisionWaitEnd && !schedule.wantsTurnEnd);
  return schedule.handle({ kind: 'decisionWaitEnded' });
};
let tickets = 0;
const execute = (
  schedule: SlotSchedule,
  layer: number,
  expert: number,
  { last = true, position = 5, sequence = 1 } = {},
): [ticket: number, actions: SlotAction[]] => {
  const ticket = ++tickets;
  return [
    ticket,
    schedule.handle({ kind: 'execute', ticket, ...passOfSequence(sequence, position, 1), layer, expert, last }),
  ];
};
const load = (layer: number, expert: number, slot = 0, urgent = false): SlotAction => ({
  kind: 'load',
  slot,
  layer,
  expert,
  urgent,
  parts: perPart(() => ({ from: 'storage', entry: -1 })),
});
const urgentLoad = (layer: number, expert: number, slot = 0): SlotAction => load(layer, expert, slot, true);
const prioritize = (slot = 0): SlotAction => ({ kind: 'prioritize', slot });
const evict = (slot = 0): SlotAction => ({ kind: 'evict', slot });
const start = (ticket: number, wasLoaded: boolean, slot = 0): SlotAction => ({
  kind: 'execute',
  slot,
  ticket,
  wasLoaded,
});

describe('worker: the slot schedule in decode', () => {
  it('loads a prediction, runs it, evicts it at once and starts the next one', () => {
    const schedule = new SlotSchedule(1);
    assert.deepEqual(predict(schedule, 0, [3]), [load(0, 3)]);
    assert.deepEqual(predict(schedule, 4, [6]), []);
    assert.deepEqual(loaded(schedule), []);
    const [ticket, actions] = execute(schedule, 0, 3);
    assert.deepEqual(actions, [start(ticket, true)]);
    assert.deepEqual(ran(schedule), [evict(), load(4, 6)]);
    assert.equal(schedule.counters.unannouncedLoads, 0);
  });

  it('reports that an execute which arrived during the load had to wait', () => {
    const schedule = new SlotSchedule(1);
    predict(schedule, 0, [3]);
    const [ticket, actions] = execute(schedule, 0, 3);
    assert.deepEqual(actions, [prioritize()], 'main waits for it from now on');
    assert.equal(schedule.wantsTurnEnd, false);
    assert.deepEqual(loaded(schedule), [start(ticket, false)]);
  });

  it('cancels the load of a misprediction that main released and loads the requested expert', () => {
    const schedule = new SlotSchedule(1);
    predict(schedule, 0, [3]);
    const [ticket] = execute(schedule, 0, 7);
    assert.deepEqual(release(schedule, 0, [3]), [{ kind: 'cancelLoad', slot: 0 }]);
    assert.equal(schedule.wantsTurnEnd, false);
    assert.deepEqual(settled(schedule, 0, 'cancelled'), [urgentLoad(0, 7)]);
    assert.deepEqual(loaded(schedule), [start(ticket, false)]);
    assert.equal(schedule.counters.unannouncedLoads, 1);
  });

  it('makes room for an execute: the prediction that main reaches last is evicted, and comes back afterwards', () => {
    const schedule = new SlotSchedule(2);
    predict(schedule, 4, [6]);
    predict(schedule, 2, [1]);
    loaded(schedule, 0);
    loaded(schedule, 1);
    const [ticket, actions] = execute(schedule, 0, 5);
    assert.deepEqual(actions, []);
    assert.deepEqual(endTurn(schedule), [evict(0), urgentLoad(0, 5, 0)]);
    assert.deepEqual(loaded(schedule, 0), [start(ticket, false)]);
    assert.deepEqual(ran(schedule, 0), [evict(0), load(4, 6, 0)]);
  });

  it('evicts the sequence that executed longer ago, and loads it again after the other one', () => {
    const schedule = new SlotSchedule(2);
    predict(schedule, 3, [1], 0, 2);
    predict(schedule, 3, [4], 9, 1);
    predict(schedule, 3, [7], 10, 1);
    loaded(schedule, 0);
    loaded(schedule, 1);
    const [ticket] = execute(schedule, 0, 5);
    assert.deepEqual(endTurn(schedule), [evict(0), urgentLoad(0, 5, 0)]);
    assert.deepEqual(loaded(schedule, 0), [start(ticket, false)]);
    assert.deepEqual(ran(schedule, 0), [evict(0), load(3, 7, 0)]);
  });

  it('runs two experts of one layer in one slot, in the order of their loads', () => {
    const schedule = new SlotSchedule(1);
    assert.deepEqual(predict(schedule, 0, [3, 4]), [load(0, 3)]);
    loaded(schedule);
    const [fourth, none] = execute(schedule, 0, 4);
    assert.equal(schedule.wantsTurnEnd, false);
    assert.equal(schedule.wantsDecisionWaitEnd, true);
    const [third, actions] = execute(schedule, 0, 3);
    assert.deepEqual(none, []);
    assert.deepEqual(actions, [start(third, true)]);
    assert.equal(
      schedule.wantsDecisionWaitEnd,
      false,
      'expert 3 was asked for in the same turn and is not dropped for expert 4',
    );
    assert.deepEqual(ran(schedule), [evict(), urgentLoad(0, 4)]);
    assert.deepEqual(loaded(schedule), [start(fourth, false)]);
    assert.equal(schedule.counters.unannouncedLoads, 0);
  });

  it("drops an expert of main's current layer only when main had time to request it", () => {
    const schedule = new SlotSchedule(1);
    predict(schedule, 0, [3]);
    loaded(schedule);
    const [ticket] = execute(schedule, 0, 4);
    assert.deepEqual(schedule.handle({ kind: 'turnEnded' }), []);
    assert.deepEqual(endDecisionWait(schedule), [evict(), urgentLoad(0, 4)]);
    assert.deepEqual(loaded(schedule), [start(ticket, false)]);
  });

  it('keeps the other expert of a layer when main releases one, and drops passed layers', () => {
    const schedule = new SlotSchedule(3);
    predict(schedule, 0, [3, 4]);
    predict(schedule, 2, [1]);
    assert.deepEqual(release(schedule, 0, [3]), [{ kind: 'cancelLoad', slot: 0 }]);
    loaded(schedule, 1);
    loaded(schedule, 2);
    assert.deepEqual(execute(schedule, 2, 1)[1], [evict(1), start(tickets, true, 2)]);
    predict(schedule, 3, [0]);
    assert.deepEqual(
      release(schedule, 4, [5]),
      [{ kind: 'cancelLoad', slot: 1 }],
      'a release, too, tells where main is',
    );
  });
});

describe('worker: predictions in the slot schedule', () => {
  it('for a layer that main has reached or left are discarded and counted', () => {
    const schedule = new SlotSchedule(2);
    const [ticket, actions] = execute(schedule, 3, 0);
    assert.deepEqual(actions, [urgentLoad(3, 0)]);
    assert.deepEqual(predict(schedule, 3, [1, 2]), []);
    assert.deepEqual(predict(schedule, 1, [1]), []);
    assert.equal(schedule.counters.latePredictions, 3);
    assert.deepEqual(predict(schedule, 1, [1], 6), [load(1, 1, 1)], 'an earlier layer of a later position is not late');
    assert.deepEqual(loaded(schedule), [start(ticket, false)]);
  });

  it('are discarded when they arrive after main released that layer', () => {
    const schedule = new SlotSchedule(1);
    release(schedule, 2, [4]);
    assert.deepEqual(predict(schedule, 2, [4]), []);
    assert.equal(schedule.counters.latePredictions, 1);
  });

  it('are tracked for each sequence by itself', () => {
    const schedule = new SlotSchedule(2);
    execute(schedule, 3, 0);
    assert.deepEqual(predict(schedule, 0, [2], 0, 2), [load(0, 2, 1)]);
  });

  it('of shadow replace its earlier ones for the layer', () => {
    const schedule = new SlotSchedule(1);
    predict(schedule, 0, [3]);
    loaded(schedule);
    assert.deepEqual(predict(schedule, 0, [5]), [evict(), load(0, 5)]);
    assert.deepEqual(predict(schedule, 0, [5]), []);
    assert.deepEqual(predict(schedule, 0, []), [{ kind: 'cancelLoad', slot: 0 }]);
  });

  it('keep loaded or loading experts of a growing set, and load the new ones', () => {
    const schedule = new SlotSchedule(3);
    assert.deepEqual(predict(schedule, 2, [4, 6]), [load(2, 4), load(2, 6, 1)]);
    loaded(schedule, 0);
    assert.deepEqual(predict(schedule, 2, [4, 6, 1]), [load(2, 1, 2)]);
    const [ticket, actions] = execute(schedule, 2, 4);
    assert.deepEqual(actions, [start(ticket, true)]);
  });

  it('are void from the position of a restart of shadow, and their loads are cancelled', () => {
    const schedule = new SlotSchedule(4);
    predict(schedule, 1, [3], 5);
    predict(schedule, 0, [4], 6);
    predict(schedule, 2, [5], 7);
    predict(schedule, 0, [6], 6, 2);
    loaded(schedule, 2);
    assert.deepEqual(schedule.handle({ kind: 'restart', sequence: 1, position: 6 }), [
      { kind: 'cancelLoad', slot: 1 },
      evict(2),
    ]);
    assert.deepEqual(settled(schedule, 1, 'cancelled'), []);
    assert.deepEqual(predict(schedule, 0, [7], 6), [load(0, 7, 1)], 'shadow predicts anew from there');
  });

  it('of main survive a restart, both its requests and its announcements', () => {
    const schedule = new SlotSchedule(3);
    predict(schedule, 0, [1, 2, 3]);
    announce(schedule, 0, [2]);
    const [ticket] = execute(schedule, 0, 1);
    const restarted = schedule.handle({ kind: 'restart', sequence: 1, position: 0 });
    assert.deepEqual(restarted, [{ kind: 'cancelLoad', slot: 2 }]);
    assert.deepEqual(loaded(schedule, 0), [start(ticket, false)]);
    assert.deepEqual(predict(schedule, 0, [7]), [], 'main is at that layer');
    assert.deepEqual(release(schedule, 0, [2]), [{ kind: 'cancelLoad', slot: 1 }]);
  });

  it('drop the oldest beyond the bound of the queue', () => {
    const schedule = new SlotSchedule(1);
    predict(schedule, 0, [0]);
    for (let position = 0; position < QUEUED_PREDICTIONS_LIMIT + 2; position++)
      predict(schedule, 1, [1], 10 + position);
    assert.equal(schedule.counters.droppedPredictions, 2);
    loaded(schedule);
    const [, actions] = execute(schedule, 0, 0, { position: 5 });
    assert.equal(actions[0]?.kind, 'execute');
    assert.deepEqual(ran(schedule), [evict(), load(1, 1)]);
    loaded(schedule);
    const [, first] = execute(schedule, 1, 1, { position: 12 });
    assert.equal(first[0]?.kind, 'execute', 'positions 10 and 11 were dropped, 12 is the oldest left');
  });

  it('of shadows displace none that main has announced', () => {
    const schedule = new SlotSchedule(1);
    predict(schedule, 0, [0]);
    announce(schedule, 0, [2], 6);
    for (let position = 0; position < 3 * QUEUED_PREDICTIONS_LIMIT; position++)
      predict(schedule, 1, [1], 10 + position);
    assert.equal(schedule.counters.droppedPredictions, 2 * QUEUED_PREDICTIONS_LIMIT);
    loaded(schedule);
    execute(schedule, 0, 0);
    assert.deepEqual(ran(schedule), [evict(), load(0, 2)], "main's expert comes next");
  });

  it('of a peer that predicts without end stay within their bounds, and main is served', () => {
    const schedule = new SlotSchedule(2);
    const flood = 50_000;
    for (let index = 0; index < flood; index++) predict(schedule, index % 7, [index % 8], index >> 3, index % 200);
    const [ticket] = execute(schedule, 0, 1, { sequence: 1000 });
    const actions = endTurn(schedule);
    const [action] = actions;
    const slot = action !== undefined && 'slot' in action ? action.slot : -1;
    assert.deepEqual(actions, [{ kind: 'cancelLoad', slot }]);
    assert.deepEqual(settled(schedule, slot, 'cancelled'), [urgentLoad(0, 1, slot)]);
    assert.deepEqual(loaded(schedule, slot), [start(ticket, false, slot)]);
    const { latePredictions, droppedPredictions } = schedule.counters;
    assert.equal(latePredictions, 0);
    assert.ok(droppedPredictions > 0 && droppedPredictions < flood);
  });

  it('are forgotten with an ended sequence, late ones too', () => {
    const schedule = new SlotSchedule(1);
    predict(schedule, 0, [3], 8);
    assert.deepEqual(schedule.handle({ kind: 'end', sequence: 1 }), [{ kind: 'cancelLoad', slot: 0 }]);
    settled(schedule, 0, 'cancelled');
    assert.deepEqual(predict(schedule, 0, [3], 99), []);
    assert.equal(schedule.slotsInUse, 0);
  });

  it('lose the slots of a sequence that main executes no more', () => {
    const schedule = new SlotSchedule(2);
    predict(schedule, 0, [3], 8, 7);
    loaded(schedule);
    for (let step = 0; step < IDLE_SEQUENCE_EXECUTES; step++) {
      execute(schedule, 0, 1, { position: step });
      loaded(schedule, 1);
      ran(schedule, 1);
    }
    assert.equal(schedule.slotsInUse, 1);
    assert.deepEqual(execute(schedule, 0, 1, { position: 1000 })[1], [evict(0), urgentLoad(0, 1, 0)]);
  });

  it('keep their slots beside any number of executes of the head that drafts', () => {
    const schedule = new SlotSchedule(2);
    predict(schedule, 0, [3], 8, 7);
    loaded(schedule);
    for (let ticket = 0; ticket < 2 * IDLE_SEQUENCE_EXECUTES; ticket++) {
      const here = { ...passOfSequence(1, ticket, 1), layer: 2 };
      schedule.handle({ kind: 'execute', ticket, ...here, expert: 1, last: true, isOfHead: true });
      loaded(schedule, 1);
      ran(schedule, 1);
    }
    assert.equal(schedule.slotsInUse, 1);
    assert.equal(schedule.counters.unannouncedLoads, 0, 'nobody announces experts of the head');
    assert.deepEqual(schedule.handle({ kind: 'end', sequence: 7 }), [evict(0)]);
  });

  it('are remembered for a bounded number of sequences', () => {
    const schedule = new SlotSchedule(1);
    predict(schedule, 0, [3], 0, 1);
    loaded(schedule);
    const last = MAX_FOLLOWED_SEQUENCES + 1;
    for (let sequence = 2; sequence < last; sequence++) predict(schedule, 0, [3], 0, sequence);
    const actions = predict(schedule, 0, [3], 0, last);
    assert.deepEqual(actions, [evict(), load(0, 3)]);
  });

  it('are void under another placement, unlike the expert in use', () => {
    const schedule = new SlotSchedule(2);
    predict(schedule, 0, [3]);
    predict(schedule, 2, [1]);
    loaded(schedule, 0);
    execute(schedule, 0, 3, { last: false });
    ran(schedule, 0);
    assert.deepEqual(schedule.handle({ kind: 'epochChanged' }), [{ kind: 'cancelLoad', slot: 1 }]);
    const [ticket, actions] = execute(schedule, 0, 3);
    assert.deepEqual(actions, [start(ticket, true)], 'between two mini-batches it is in use too');
  });
});

describe('worker: announcements that main doubts', () => {
  const doubt = (schedule: SlotSchedule, layer: number, experts: number[]): SlotAction[] =>
    schedule.handle({ kind: 'doubt', ...passOfSequence(1, 5, 1), layer, experts });

  it('do not load while others wait, and load when main asks for them', () => {
    const schedule = new SlotSchedule(1);
    assert.deepEqual(announce(schedule, 1, [3]), [load(1, 3)]);
    assert.deepEqual(announce(schedule, 2, [4, 5]), []);
    assert.deepEqual(doubt(schedule, 2, [4]), []);
    loaded(schedule);
    assert.deepEqual(release(schedule, 1, [3]), [evict(), load(2, 5)], 'expert 4 is passed over');
    loaded(schedule);
    const [first] = execute(schedule, 2, 5);
    assert.deepEqual(ran(schedule), [evict()], 'nothing loads expert 4 by itself');
    assert.equal(first, tickets);
    const [ticket, actions] = execute(schedule, 2, 4);
    assert.deepEqual(actions, [urgentLoad(2, 4)]);
    assert.deepEqual(loaded(schedule), [start(ticket, false)]);
    assert.equal(schedule.counters.unannouncedLoads, 0);
  });

  it('give up their slots, also during the load, but only for others', () => {
    const schedule = new SlotSchedule(1);
    assert.deepEqual(announce(schedule, 1, [3]), [load(1, 3)]);
    assert.deepEqual(doubt(schedule, 1, [3]), [], 'nothing else is to be loaded');
    assert.deepEqual(announce(schedule, 2, [4]), [{ kind: 'cancelLoad', slot: 0 }]);
    assert.deepEqual(settled(schedule, 0, 'cancelled'), [load(2, 4)]);
    assert.deepEqual(loaded(schedule), []);
    assert.deepEqual(doubt(schedule, 2, [4]), []);
    assert.deepEqual(announce(schedule, 3, [5]), [evict(), load(3, 5)]);
  });

  it('load when they are announced again, by main or by shadow', () => {
    for (const again of [announce, predict]) {
      const schedule = new SlotSchedule(1);
      announce(schedule, 1, [3]);
      announce(schedule, 2, [4]);
      doubt(schedule, 2, [4]);
      again(schedule, 2, [4]);
      loaded(schedule);
      assert.deepEqual(release(schedule, 1, [3]), [evict(), load(2, 4)]);
    }
  });

  it('are looked for in slots only where there are any', () => {
    const schedule = new SlotSchedule(1);
    let looks = 0;
    const { room } = schedule;
    Object.defineProperty(room, 'doubted', { get: () => ((looks += 1), []) });
    announce(schedule, 1, [3]);
    announce(schedule, 2, [4]);
    assert.equal(looks, 0);
    doubt(schedule, 2, [4]);
    assert.ok(looks > 0);
    release(schedule, 2, [4]);
    [looks] = [0];
    announce(schedule, 3, [5]);
    announce(schedule, 3, [6]);
    doubt(schedule, 3, [6]);
    announce(schedule, 3, [6]);
    [looks] = [0];
    loaded(schedule);
    assert.equal(looks, 0, 'one was released, the other one announced again');
  });

  it('are nothing for an expert that main has asked for, or that only shadow has named', () => {
    const schedule = new SlotSchedule(1);
    predict(schedule, 1, [3]);
    doubt(schedule, 1, [3]);
    assert.deepEqual(predict(schedule, 2, [4]), [], 'expert 3 keeps its slot');
    const asked = new SlotSchedule(1);
    announce(asked, 1, [3]);
    execute(asked, 1, 3, { last: false });
    doubt(asked, 1, [3]);
    assert.deepEqual(announce(asked, 2, [4]), []);
  });
});

describe('worker: the slot schedule in prefill', () => {
  it('keeps an expert from mini-batch to mini-batch and evicts it after the last one', () => {
    const schedule = new SlotSchedule(1);
    announce(schedule, 0, [2]);
    loaded(schedule);
    const [first, startFirst] = execute(schedule, 0, 2, { last: false });
    assert.deepEqual(startFirst, [start(first, true)]);
    assert.deepEqual(announce(schedule, 1, [4]), []);
    assert.deepEqual(ran(schedule), [], 'the next layer waits while mini-batches may follow');
    const [second] = execute(schedule, 0, 2, { last: false });
    const [third, startThird] = execute(schedule, 0, 2);
    assert.deepEqual(startThird, [start(third, true)]);
    assert.ok(second < third);
    assert.deepEqual(ran(schedule), []);
    assert.deepEqual(ran(schedule), [evict(), load(1, 4)]);
  });

  it('takes the slot of a prediction before that of an expert between two mini-batches', () => {
    const schedule = new SlotSchedule(2);
    announce(schedule, 0, [3, 2]);
    loaded(schedule, 0);
    loaded(schedule, 1);
    execute(schedule, 0, 2, { last: false });
    ran(schedule, 1);
    execute(schedule, 0, 6);
    assert.deepEqual(endDecisionWait(schedule), [evict(0), urgentLoad(0, 6, 0)]);
  });

  it('runs an expert whose slot is held by another one between two mini-batches', () => {
    const schedule = new SlotSchedule(1);
    announce(schedule, 0, [2]);
    loaded(schedule);
    execute(schedule, 0, 2, { last: false });
    const [other, actions] = execute(schedule, 0, 6);
    assert.deepEqual(actions, []);
    assert.equal(schedule.wantsDecisionWaitEnd, false, 'a running expert cannot make room');
    assert.deepEqual(ran(schedule), []);
    assert.deepEqual(endDecisionWait(schedule), [evict(), urgentLoad(0, 6)]);
    assert.deepEqual(loaded(schedule), [start(other, false)]);
    assert.deepEqual(ran(schedule), [evict(), load(0, 2)], 'its next mini-batch will come');
  });

  it('takes experts that main adds to the current layer, but none of an earlier layer', () => {
    const schedule = new SlotSchedule(2);
    announce(schedule, 1, [2]);
    loaded(schedule);
    execute(schedule, 1, 2, { last: false });
    assert.deepEqual(announce(schedule, 1, [3]), [load(1, 3, 1)]);
    assert.deepEqual(announce(schedule, 0, [3]), []);
    assert.equal(schedule.counters.latePredictions, 1);
  });
});

describe('worker: the slot schedule after a failure', () => {
  it('fails every execute that waits for a failed load, and continues', () => {
    const schedule = new SlotSchedule(1);
    predict(schedule, 0, [3]);
    predict(schedule, 4, [1]);
    const [first] = execute(schedule, 0, 3, { last: false });
    const [second] = execute(schedule, 0, 3);
    assert.deepEqual(settled(schedule, 0, 'failed'), [
      { kind: 'fail', slot: 0, ticket: first },
      { kind: 'fail', slot: 0, ticket: second },
      load(4, 1),
    ]);
  });

  it('frees the waiting work of an ended sequence at once', () => {
    const schedule = new SlotSchedule(1);
    const [loading] = execute(schedule, 0, 3);
    const [without] = execute(schedule, 0, 4);
    assert.deepEqual(schedule.handle({ kind: 'end', sequence: 1 }), [
      { kind: 'cancelLoad', slot: 0 },
      { kind: 'withdraw', ticket: loading },
      { kind: 'withdraw', ticket: without },
    ]);
    assert.deepEqual(settled(schedule, 0, 'cancelled'), []);
    assert.deepEqual([schedule.slotsInUse, schedule.openCounts], [0, { expectations: 0, sequences: 0 }]);
  });

  it('frees everything when main is lost, and a running expert after its run', () => {
    const schedule = new SlotSchedule(2);
    predict(schedule, 0, [3]);
    predict(schedule, 2, [1]);
    loaded(schedule, 0);
    execute(schedule, 0, 3);
    assert.deepEqual(schedule.handle({ kind: 'mainLost' }), [{ kind: 'cancelLoad', slot: 1 }]);
    assert.deepEqual(ran(schedule, 0), [evict(0)]);
    assert.deepEqual(settled(schedule, 1, 'cancelled'), []);
    assert.equal(schedule.slotsInUse, 0);
    assert.deepEqual(predict(schedule, 0, [3], 0), [load(0, 3)], 'progress is forgotten with the main that made it');
  });
});
