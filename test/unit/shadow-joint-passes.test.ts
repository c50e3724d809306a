import assert from 'node:assert/strict';
import type { FormatSource } from '../../engine/sampling/output-formats.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { AlignToken, BeginSequence } from '../../shared/wire/messages.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { GATHER_LIMIT_MS, Predictor } from '../../shadow-node/predictor/predictor.js';
import type { Draft } from '../../shadow-node/predictor/shadow-sequence.js';
import { begin, PASS_ROWS, ScriptedModel, settled } from './scripted-shadow-model.js';
import { RUNTIME } from '../wall.js';
import { scriptedConstraint } from './scripted-constraint.js';

function createPredictor(formats?: FormatSource, runtime: Pick<Runtime, 'nowMs' | 'after' | 'nextTurn'> = RUNTIME) {
  const model = new ScriptedModel();
  const sent: string[] = [];
  const drafts: [number, Draft][] = [];
  const failures: string[] = [];
  const predictor = new Predictor(
    model,
    model.createPass(),
    PASS_ROWS,
    {
      onPrediction: (sequence, { position, layer, experts }) => {
        sent.push(`${sequence}@${position}/${layer}: ${experts.join(',')}`);
      },
      onDraft: (sequence, draft) => drafts.push([sequence, draft]),
      onRestart: (sequence, position) => sent.push(`${sequence}@${position} restart`),
      onPrefixKept: () => assert.fail('nobody has named a prefix'),
      onFailure: (sequence, error) => failures.push(`${sequence}: ${error.message}`),
    },
    runtime,
    formats,
  );
  const announce = (sequence: number, position: number, tokenId: number, changes: Partial<AlignToken> = {}): void => {
    const usual = { epoch: 1, sequence, position, tokenId, rows: 1, nextRows: 1, branch: 0 };
    predictor.announceToken({ ...usual, ...changes });
  };
  /** Sequences from 0 on, prefilled. */
  const beginAll = async (count: number, changes: Partial<BeginSequence> = {}): Promise<void> => {
    for (let id = 0; id < count; id += 1) {
      predictor.begin(begin(id, changes));
      await settled();
    }
    model.passes.length = 0;
  };
  return { model, predictor, sent: sent, drafts, failures, announce, beginAll };
}

describe('shadow: passes of several sequences', () => {
  it('run the rows that all of them can run, and give each its own results', async () => {
    const { model, sent: sent, announce, beginAll } = createPredictor();
    await beginAll(3);
    model.choose = (position, tokenId, layer) => [(position + tokenId) % 4, (position + tokenId + 1 + layer) % 4];
    announce(0, 3, 4);
    announce(1, 3, 5);
    announce(2, 3, 6);
    await settled();
    assert.deepEqual(model.passes, ['0:3 1:3 2:3']);
    assert.deepEqual(sent, ['0@3/0: 3,0', '1@3/0: 0,1', '2@3/0: 1,2', '0@3/1: 3,1', '1@3/1: 0,2', '2@3/1: 1,3']);
  });

  it('hold no more rows than a pass has, by turns', async () => {
    const { model, announce, beginAll } = createPredictor();
    await beginAll(PASS_ROWS + 2);
    for (let id = 0; id < PASS_ROWS + 2; id += 1) announce(id, 3, 4);
    await settled();
    assert.deepEqual(model.passes, ['0:3 1:3 2:3 3:3', '4:3 5:3']);
  });

  it('guess for each sequence by itself, with its own history', async () => {
    const { model, drafts, announce, beginAll } = createPredictor();
    model.guess = (position) => 10 + position;
    await beginAll(2);
    announce(0, 3, 4, { rows: 0, nextRows: 2 });
    announce(1, 3, 5);
    await settled();
    assert.deepEqual(model.passes, ['0:3 1:3', '0:4']);
    assert.deepEqual(
      drafts.map(([sequence, { position, tokenId }]) => [sequence, position, tokenId]),
      [
        [0, 4, 14],
        [0, 5, 15],
      ],
    );
  });

  it('finish where one must start again, and its results are dropped', async () => {
    const { model, sent: sent, announce, beginAll } = createPredictor();
    await beginAll(2, { optimistic: true });
    announce(0, 3, 5);
    announce(1, 3, 5);
    model.heldLayer = 1;
    await settled();
    model.release();
    await settled();
    sent.length = 0;
    model.heldLayer = 1;
    announce(0, 4, 7);
    announce(1, 4, 7);
    await settled();
    assert.deepEqual(sent, ['0@5/0: 1,2', '1@5/0: 1,2'], 'both run ahead on what they guess');
    announce(0, 5, 20, { branch: 1 });
    assert.equal(model.cancelled, 0, 'the other one’s pass goes on');
    model.release();
    await settled();
    assert.ok(sent.includes('1@5/1: 2,3'));
    assert.deepEqual(
      sent.filter((line) => line.startsWith('0@5')),
      ['0@5/0: 1,2', '0@5 restart', '0@5/0: 1,2', '0@5/1: 2,3'],
    );
    assert.deepEqual(model.truncated, ['0:5']);
    assert.equal(model.passes.at(-2)?.includes('0:5'), true);
  });

  it('finish where one has ended, and are cancelled where all have', async () => {
    const { model, predictor, sent: sent, announce, beginAll } = createPredictor();
    await beginAll(3);
    model.heldLayer = 1;
    for (let id = 0; id < 3; id += 1) announce(id, 3, 4);
    await settled();
    predictor.end(1);
    assert.deepEqual([model.cancelled, model.disposed], [0, []]);
    sent.length = 0;
    model.release();
    await settled();
    assert.deepEqual(sent, ['0@3/1: 0,1', '2@3/1: 0,1']);
    assert.deepEqual(model.disposed, [1]);
    model.heldLayer = 1;
    announce(0, 4, 4);
    announce(2, 4, 4);
    await settled();
    predictor.end(0);
    predictor.end(2);
    assert.equal(model.cancelled, 1);
    await settled();
    assert.deepEqual(model.disposed, [1, 0, 2]);
  });

  it('run the sequences alone once after a failure, and the one that fails again is dropped', async () => {
    const { model, sent: sent, failures, announce, beginAll } = createPredictor();
    await beginAll(3);
    model.failureOf = (ids) => (ids.includes(1) ? new OdmoeError('INTERNAL', 'number 1 is no good') : null);
    for (let id = 0; id < 3; id += 1) announce(id, 3, 4);
    await settled();
    assert.deepEqual(model.passes, ['0:3 1:3 2:3', '0:3', '1:3', '2:3']);
    assert.deepEqual(failures, ['1: number 1 is no good']);
    assert.deepEqual(model.disposed, [1]);
    assert.deepEqual(sent, ['0@3/0: 3,0', '0@3/1: 0,1', '2@3/0: 3,0', '2@3/1: 0,1']);
    model.passes.length = 0;
    announce(0, 4, 4);
    announce(2, 4, 4);
    await settled();
    assert.deepEqual(model.passes, ['0:4 2:4']);
  });

  it('isolate a failure of one sequence, for example in its guess, from the others', async () => {
    const constraint = scriptedConstraint((answer) => {
      if (answer.includes(40)) throw new Error('no format');
      return null;
    });
    const { model, failures, drafts, announce, beginAll } = createPredictor({ constraintOf: () => constraint });
    await beginAll(2, { optimistic: true });
    announce(0, 3, 40);
    announce(1, 3, 4);
    await settled();
    assert.deepEqual(model.passes, ['0:3 1:3', '1:4']);
    assert.deepEqual(failures, ['0: no format']);
    assert.deepEqual(model.disposed, [0]);
    assert.ok(drafts.length > 0 && drafts.every(([sequence]) => sequence === 1));
  });

  describe('in which main runs sequences together', () => {
    const joint = { joint: true };
    let nowMs: number;
    let waits: { delayMs: number; run: () => void; cancelled: boolean }[];
    const runtime: Pick<Runtime, 'nowMs' | 'after' | 'nextTurn'> = {
      nextTurn: (run) => RUNTIME.nextTurn(run),
      nowMs: () => (nowMs += 100),
      after: (delayMs, run) => {
        const wait = { delayMs, run, cancelled: false };
        waits.push(wait);
        return { cancel: () => void (wait.cancelled = true), unref: () => undefined };
      },
    };

    beforeEach(() => {
      [nowMs, waits] = [0, []];
      Object.assign(runtime, { nowMs: () => (nowMs += 100) });
    });

    /** Three sequences whose first tokens have run together. */
    async function createJoint() {
      const created = createPredictor(undefined, runtime);
      await created.beginAll(3);
      for (const id of [0, 1, 2]) created.announce(id, 3, 4, joint);
      await settled();
      created.model.passes.length = 0;
      assert.equal(waits.length, 0);
      // From now on the clock does not move when it is read.
      Object.assign(runtime, { nowMs: () => nowMs });
      return created;
    }

    it('make the first tokens of a pass wait for the others', async () => {
      const { model, announce } = await createJoint();
      announce(0, 4, 4, joint);
      await settled();
      announce(2, 4, 4, joint);
      await settled();
      assert.deepEqual(model.passes, []);
      assert.ok(waits.every(({ delayMs }) => delayMs > 0 && delayMs <= GATHER_LIMIT_MS));
      announce(1, 4, 4, joint);
      await settled();
      assert.deepEqual(model.passes, ['0:4 1:4 2:4']);
      assert.ok(waits.every(({ cancelled }) => cancelled));
    });

    it('do not wait long, and not again for one that was awaited in vain', async () => {
      const { model, announce } = await createJoint();
      for (const id of [0, 1]) announce(id, 4, 4, joint);
      await settled();
      assert.deepEqual([model.passes.length, waits.length], [0, 1]);
      nowMs += GATHER_LIMIT_MS;
      waits[0]?.run();
      await settled();
      assert.deepEqual(model.passes, ['0:4 1:4']);
      for (const id of [0, 1]) announce(id, 5, 4, joint);
      await settled();
      assert.deepEqual(model.passes, ['0:4 1:4', '0:5 1:5']);
      assert.equal(waits.length, 1);
    });

    it('do not wait for one that ends, nor for one that main runs alone', async () => {
      const { model, predictor, announce } = await createJoint();
      announce(0, 4, 4, joint);
      await settled();
      predictor.end(2);
      announce(1, 4, 4);
      await settled();
      assert.deepEqual(model.passes, ['0:4 1:4']);
    });
  });
});
