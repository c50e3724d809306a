import assert from 'node:assert/strict';
import fc from 'fast-check';
import type { FormatSource } from '../../engine/sampling/output-formats.js';
import type { OutputConstraint } from '../../engine/output-format/output-constraint.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { AlignToken } from '../../shared/wire/messages.js';
import { REMEMBERED_RANGES } from '../../shadow-node/predictor/alignment.js';
import { Predictor } from '../../shadow-node/predictor/predictor.js';
import type { Draft } from '../../shadow-node/predictor/shadow-sequence.js';
import { DraftingMain } from './drafting-main.js';
import { begin, cacheRows, PASS_ROWS, ScriptedModel, settled, SHAPE } from './scripted-shadow-model.js';
import { WallRuntime } from '../../shared/base/runtime/wall-runtime.js';
import { RUNTIME } from '../wall.js';
import { waitUntil } from '../integration/harness/wait-until.js';
import { scriptedConstraint } from './scripted-constraint.js';

function createPredictor(formats?: FormatSource) {
  const model = new ScriptedModel();
  const sent: string[] = [];
  const drafts: Draft[] = [];
  const failures: string[] = [];
  let now = 0;
  const predictor = new Predictor(
    model,
    model.createPass(),
    PASS_ROWS,
    {
      onPrediction: (sequence, { position, rows, layer, experts, again }, late) =>
        sent.push(
          `${sequence}@${position}+${rows}/${layer}: ${experts.join(',')}${again ? ' again' : ''}${late ? ' late' : ''}`,
        ),
      onDraft: (_, draft) => drafts.push(draft),
      onRestart: (sequence, position) => sent.push(`${sequence}@${position} restart`),
      onPrefixKept: () => assert.fail('nobody has named a prefix'),
      onFailure: (sequence, error) => failures.push(`${sequence}: ${error.message}`),
    },
    // Rises as each layer's router chooses, and at the end.
    Object.assign(new WallRuntime(), { nowMs: () => (now += 1) }),
    formats,
  );
  const announce = async (position: number, tokenId: number, changes: Partial<AlignToken> = {}) => {
    predictor.announceToken({
      epoch: 1,
      sequence: 1,
      position,
      tokenId,
      rows: 1,
      nextRows: 1,
      branch: 0,
      ...changes,
    });
    await settled();
  };
  const draftsOf = () => drafts.splice(0).map((draft) => [draft.position, draft.tokenId, draft.passPosition]);
  return { model, predictor, sent: sent, drafts, draftsOf, failures, announce };
}

describe('shadow: the drafting of tokens', () => {
  it('covers the pass that main is about to begin, with sets that grow from position to position', async () => {
    const { model, predictor, sent: sent, draftsOf, announce } = createPredictor();
    model.guess = (position) => 10 + position;
    predictor.begin(begin(1));
    await announce(3, 5, { rows: 0, nextRows: 3 });
    assert.deepEqual(model.passes, ['0:0,1,2', '0:3', '0:4', '0:5']);
    assert.deepEqual(model.ran, [1, 2, 3, 5, 14, 15]);
    assert.deepEqual(sent, [
      '1@3+3/0: 3,0',
      '1@3+3/1: 0,1',
      '1@3+3/0: 3,0,1 again',
      '1@3+3/1: 0,1,2 again',
      '1@3+3/0: 3,0,1,2 again',
      '1@3+3/1: 0,1,2,3 again',
    ]);
    assert.deepEqual(draftsOf(), [
      [4, 14, 3],
      [5, 15, 3],
      [6, 16, 6],
    ]);
  });

  it('moves the drafts and predictions that a shorter pass leaves over to the next one', async () => {
    const { model, predictor, sent: sent, draftsOf, announce } = createPredictor();
    model.guess = (position) => 10 + position;
    predictor.begin(begin(1));
    await announce(3, 5, { rows: 0, nextRows: 3 });
    sent.length = 0;
    draftsOf();
    await announce(3, 5, { rows: 1, nextRows: 3 });
    assert.deepEqual(sent, ['1@4+3/0: 0,1,2', '1@4+3/1: 1,2,3'], 'positions 4 and 5 under the pass from 4 on');
    assert.deepEqual(draftsOf(), [
      [4, 14, 4],
      [5, 15, 4],
      [6, 16, 4],
    ]);
    assert.equal(model.passes.length, 4, 'nothing is run twice');
  });

  it('runs through the next pass under optimism, and no further', async () => {
    const { model, predictor, draftsOf, announce } = createPredictor();
    model.guess = (position) => 10 + position;
    predictor.begin(begin(1, { optimistic: true }));
    await settled();
    assert.deepEqual(model.passes, ['0:0,1,2'], 'not before main’s first token');
    await announce(3, 5, { nextRows: 2 });
    assert.deepEqual(model.passes.slice(1), ['0:3', '0:4', '0:5']);
    assert.deepEqual(draftsOf(), [
      [4, 14, 4],
      [5, 15, 4],
      [6, 16, 6],
    ]);
    await announce(4, 14, { rows: 2, nextRows: 2 });
    assert.deepEqual(model.passes.slice(4), ['0:6', '0:7']);
    assert.equal(predictor.counts().alignedTokens, 2, 'one was taken, one guessed');
  });

  it('starts again from main’s token where it had run another', async () => {
    const { model, predictor, sent: sent, drafts, announce } = createPredictor();
    model.guess = (position) => 10 + position;
    predictor.begin(begin(1, { optimistic: true }));
    await announce(3, 5, { nextRows: 2 });
    sent.length = 0;
    drafts.length = 0;
    await announce(4, 30, { branch: 1 });
    assert.deepEqual(model.truncated, ['0:4']);
    assert.deepEqual(sent, ['1@4 restart', '1@4+1/0: 0,1', '1@4+1/1: 1,2', '1@5+1/0: 1,2', '1@5+1/1: 2,3']);
    assert.deepEqual(model.ran, [1, 2, 3, 5, 30, 15]);
    assert.deepEqual(
      drafts.map(({ position, branch, passPosition, runUs }) => [position, branch, passPosition, runUs]),
      [
        [5, 1, 5, 3000],
        [6, 1, 6, 3000],
      ],
    );
  });

  it('cancels the pass of a wrong guess, and ignores its results', async () => {
    const { model, predictor, sent: sent, drafts, failures, announce } = createPredictor();
    predictor.begin(begin(1, { optimistic: true }));
    await announce(3, 5, { rows: 1, nextRows: 1 });
    await announce(4, 7);
    sent.length = 0;
    drafts.length = 0;
    model.heldLayer = 1;
    await announce(5, 7, { nextRows: 1 });
    assert.deepEqual(sent, ['1@6+1/0: 2,3'], 'position 6 is under way');
    predictor.announceToken({ epoch: 1, sequence: 1, position: 6, tokenId: 9, rows: 1, nextRows: 1, branch: 1 });
    assert.equal(model.cancelled, 1);
    assert.deepEqual(model.truncated, [], 'not while the pass still runs');
    model.heldLayer = null;
    await settled();
    assert.deepEqual(model.truncated, ['0:6']);
    assert.deepEqual(failures, []);
    assert.deepEqual(sent.slice(1, 4), ['1@6 restart', '1@6+1/0: 2,3', '1@6+1/1: 3,0']);
    assert.deepEqual(model.ran.slice(6), [9, 7]);
    assert.deepEqual(
      drafts.map(({ position, branch }) => [position, branch]),
      [
        [7, 1],
        [8, 1],
      ],
    );
  });

  it('does not run a pass that is still starting when its guess proves wrong', async () => {
    const { model, predictor, sent: sent, failures, announce } = createPredictor();
    predictor.begin(begin(1, { optimistic: true }));
    await settled();
    await announce(3, 5);
    model.held = true;
    await announce(4, 7);
    sent.length = 0;
    predictor.announceToken({ epoch: 1, sequence: 1, position: 5, tokenId: 9, rows: 1, nextRows: 1, branch: 1 });
    model.release();
    await settled();
    assert.equal(model.cancelled, 0);
    assert.deepEqual(failures, []);
    assert.deepEqual(sent.slice(0, 2), ['1@5 restart', '1@5+1/0: 1,2']);
    assert.deepEqual(model.ran.slice(5), [9, 7]);
  });

  it('reports a failure of a cancelled pass that the cancellation did not cause', async () => {
    const { model, predictor, failures, announce } = createPredictor();
    predictor.begin(begin(1, { optimistic: true }));
    await announce(3, 5);
    model.held = true;
    await announce(4, 7);
    await announce(5, 9, { branch: 1 });
    model.failure = new OdmoeError('DEVICE_OUT_OF_MEMORY', 'full');
    model.release();
    await settled();
    assert.deepEqual(failures, ['1: full']);
  });

  it('delays nobody when a sequence ends while it runs ahead', async () => {
    const { model, predictor, failures, announce } = createPredictor();
    predictor.begin(begin(1, { optimistic: true }));
    await announce(3, 5);
    model.heldLayer = 1;
    await announce(4, 7);
    predictor.end(1);
    assert.equal(model.cancelled, 1);
    await settled();
    assert.deepEqual(model.disposed, [0]);
    assert.deepEqual(failures, []);
  });

  it('samples as main does: with its random numbers, and its earlier tokens', async () => {
    const { model, predictor, draftsOf, announce } = createPredictor();
    const sampling = { temperature: 100, topK: 0, topP: 1, minP: 0, repetitionPenalty: 1, seed: 11 };
    const drawn = async (id: number, seed: number) => {
      predictor.begin(begin(id, { optimistic: true, sampling: { ...sampling, seed } }));
      await announce(3, 5, { sequence: id, nextRows: 6 });
      predictor.end(id);
      return draftsOf().map(([, token]) => token);
    };
    const first = await drawn(1, 11);
    assert.equal(first.length, 7);
    assert.ok(new Set(first).size > 1);
    assert.deepEqual(await drawn(2, 11), first);
    assert.notDeepEqual(await drawn(3, 12), first);
    model.guess = () => 5;
    const penalty = { ...sampling, temperature: 0, repetitionPenalty: 1000 };
    predictor.begin(begin(4, { optimistic: true, sampling: penalty }));
    await announce(3, 4, { sequence: 4 });
    assert.deepEqual(draftsOf(), [
      [4, 5, 4],
      [5, 0, 5],
    ]);
    predictor.end(4);
  });

  it('follows penalties and the output format, both counted from the start of main’s answer', async () => {
    const asked: string[] = [];
    // One token for each length of the answer, none after three, and whatever comes after a token 9.
    const constraint = scriptedConstraint((answer, room) => {
      asked.push(`${answer.join(' ')}, ${room} left`);
      const [only] = answer.length < 4 ? [20 + answer.length] : [];
      return answer.includes(9) ? null : Uint8Array.from({ length: SHAPE.vocabSize }, (_, id) => Number(id === only));
    });
    const { predictor, draftsOf, announce, failures } = createPredictor({ constraintOf: () => constraint });
    const sampling = { temperature: 0, topK: 0, topP: 1, minP: 0, repetitionPenalty: 1, presencePenalty: 1 };
    const begun = { optimistic: true, sampling, promptTokens: 3, maxPositions: 12 };
    predictor.begin(begin(1, begun));
    await announce(3, 5, { rows: 1, nextRows: 6 });
    const right = [
      [4, 21, 4],
      [5, 22, 4],
      [6, 23, 4],
    ];
    assert.deepEqual(draftsOf(), right, 'nothing is drafted where the format takes nothing');
    assert.deepEqual(asked, ['5, 8 left', '5 21, 7 left', '5 21 22, 6 left', '5 21 22 23, 5 left']);
    await announce(4, 9, { branch: 1 });
    assert.equal(draftsOf()[0]?.[1], 7, 'tokens of main that break the format leave shadow’s own guess');
    predictor.begin(begin(1, begun));
    await announce(3, 5, { rows: 1, nextRows: 6 });
    assert.deepEqual(draftsOf(), right);
    assert.deepEqual(failures, []);
    predictor.end(1);
  });

  it('reads main’s tokens while allowed tokens are computed, and stops where main has continued otherwise', async () => {
    let isHeld = true;
    const constraint: OutputConstraint = {
      *allowed() {
        while (isHeld) yield;
        return null;
      },
      isClosed: () => false,
    };
    const { model, predictor, draftsOf, announce, failures } = createPredictor({ constraintOf: () => constraint });
    predictor.begin(begin(1, { optimistic: true, promptTokens: 3, maxPositions: 12 }));
    await announce(3, 5, { rows: 1, nextRows: 6 });
    predictor.end(1);
    await settled();
    assert.deepEqual(model.disposed, [], 'its pass runs still');
    isHeld = false;
    await waitUntil('the pass is over', () => model.disposed.length === 1);
    assert.deepEqual([draftsOf(), failures], [[], []]);
  });

  it('waits while the output format is being compiled, and continues as soon as it is', async () => {
    const only = Uint8Array.from({ length: SHAPE.vocabSize }, (_, id) => Number(id === 21));
    const constraint = scriptedConstraint(() => only);
    let compiled: (ready: typeof constraint) => void = () => undefined;
    let refused: (error: Error) => void = () => undefined;
    const constraintOf = () =>
      new Promise<typeof constraint>((resolve, reject) => ([compiled, refused] = [resolve, reject]));
    const { predictor, sent: sent, draftsOf, announce, failures } = createPredictor({ constraintOf });
    const begun = { optimistic: true, promptTokens: 3, maxPositions: 12 };
    predictor.begin(begin(1, begun));
    await announce(3, 5);
    assert.ok(sent.length > 0, 'experts are predicted meanwhile');
    assert.deepEqual(draftsOf(), []);
    compiled(constraint);
    await announce(4, 9);
    assert.equal(draftsOf()[0]?.[1], 21);
    predictor.end(1);
    predictor.begin(begin(2, begun));
    refused(new OdmoeError('REQUEST_INVALID', 'no such format'));
    await settled();
    assert.deepEqual(failures, ['2: no such format']);
    predictor.begin(begin(3, begun));
    predictor.end(3);
    refused(new OdmoeError('CANCELLED', 'nobody waits'));
    await settled();
    assert.equal(failures.length, 1, 'one that has ended fails no more');
  });

  it('is off without optimism and draft rows', async () => {
    const { predictor, drafts, announce } = createPredictor();
    predictor.begin(begin(1));
    for (const position of [3, 4, 5]) await announce(position, 9);
    assert.deepEqual(drafts, []);
  });

  it('replaces main’s rows of a rejected draft, and overwrites shadow’s own', async () => {
    const { model, predictor, announce } = createPredictor();
    predictor.begin(begin(1, { optimistic: true, alignKvPeriod: 1 }));
    await announce(3, 5, { nextRows: 2 });
    assert.deepEqual(model.ran.length, 6);
    for (const layer of [0, 1]) predictor.addRows(cacheRows(1, layer, 3, 1));
    await settled();
    assert.deepEqual(model.written, ['0:0:3+1', '0:1:3+1'], 'though positions after it have been run');
    model.written.length = 0;
    await announce(4, 7, { rows: 2, nextRows: 2 });
    predictor.addRows(cacheRows(1, 0, 4, 2));
    await announce(5, 20, { rows: 1, nextRows: 2, branch: 1 });
    assert.deepEqual(model.written, ['0:0:4+1'], 'the rejected position’s row is not');
  });

  it('replaces main’s rows of a rejected draft where no token is ever due', async () => {
    const { model, predictor, sent: sent, announce } = createPredictor();
    predictor.begin(begin(1, { alignTokenPeriod: 0, alignKvPeriod: 4 }));
    await announce(3, 5, { rows: 2, nextRows: 2 });
    predictor.addRows(cacheRows(1, 0, 3, 2));
    await announce(4, 20, { rows: 1, nextRows: 2, branch: 1 });
    for (const position of [5, 6, 7]) await announce(position, 20, { branch: 1 });
    assert.deepEqual(model.written, ['0:0:3+1'], 'position 4 was to come again');
    assert.ok(!sent.some((line) => line.includes('restart')));
  });

  it('reports a wrong guess even when only a second token of it was drafted, with any period', async () => {
    const { model, predictor, sent: sent, announce } = createPredictor();
    predictor.begin(begin(1, { optimistic: true, alignTokenPeriod: 2 }));
    await announce(3, 5, { nextRows: 3 });
    assert.deepEqual(model.ran, [1, 2, 3, 5, 7, 7, 7]);
    await announce(4, 9, { rows: 1, nextRows: 3, branch: 1 });
    assert.ok(!sent.some((line) => line.includes('restart')), 'position 4 is not due');
    await announce(5, 9, { rows: 1, nextRows: 3, branch: 2 });
    assert.ok(sent.includes('1@5 restart'));
    assert.deepEqual(model.ran.slice(3, 6), [5, 7, 9]);
  });

  it('assigns a guess after a rejected draft to the branch on which the pass began', async () => {
    const { model, predictor, sent: sent, drafts, announce } = createPredictor();
    predictor.begin(begin(1, { optimistic: true, alignTokenPeriod: 2 }));
    await announce(3, 5);
    await announce(4, 7);
    model.heldLayer = 1;
    await announce(5, 7);
    drafts.length = 0;
    await announce(6, 9, { branch: 1 });
    assert.ok(!sent.some((line) => line.includes('restart')), 'position 6 is not due');
    model.resume();
    await settled();
    const [first] = drafts;
    assert.deepEqual([first?.position, first?.branch], [7, 0], 'main drops it: it stands on the rejected token');
  });

  const runs = fc.record({
    optimistic: fc.boolean(),
    rows: fc.integer({ min: 1, max: 4 }),
    wrong: fc.array(fc.integer({ min: 0, max: 3 }), { minLength: 1, maxLength: 20 }),
    events: fc.array(fc.constantFrom('main', 'shadow', 'shadow', 'hold', 'let'), { maxLength: 80, size: 'max' }),
  });

  it('ends on main’s tokens in any order of events, and predicts every pass of main unless it is late', async () => {
    await fc.assert(
      fc.asyncProperty(runs, async ({ optimistic, rows, wrong, events }) => {
        const maxPositions = 24;
        const token = (position: number) => 1 + ((position * 7) % 40);
        const chosen = (position: number, tokenId: number, layer: number) => [
          (tokenId + layer) % 4,
          (tokenId + position) % 4 === (tokenId + layer) % 4 ? (tokenId + layer + 1) % 4 : (tokenId + position) % 4,
        ];
        const main = new DraftingMain({ promptTokens: 3, maxPositions, optimistic, rows, token });
        const model = new ScriptedModel();
        model.choose = chosen;
        let guesses = 0;
        model.guess = (position) => (wrong[guesses++ % wrong.length] === 0 ? 45 : token(position));
        const sets = new Map<string, number[]>();
        const failures: unknown[] = [];
        const predictor = new Predictor(
          model,
          model.createPass(),
          PASS_ROWS,
          {
            onPrediction: (_, { position, layer, experts }) => sets.set(`${position}/${layer}`, experts),
            onDraft: (_, draft) => main.takeDraft(draft),
            onRestart: (_, position) => {
              for (const key of sets.keys()) if (parseInt(key, 10) >= position) sets.delete(key);
            },
            onFailure: (_, error) => failures.push(error),
            onPrefixKept: () => assert.fail('nobody has named a prefix'),
          },
          RUNTIME,
        );
        const tooLate = (): boolean => {
          const wrongGuess = model.ran.findIndex((tokenId, position) => tokenId !== token(position));
          const ran = wrongGuess < 0 ? model.ran.length : wrongGuess;
          return main.passes.filter((pass) => pass.begin + pass.rows > ran).length >= REMEMBERED_RANGES / 2;
        };
        const announce = (): boolean => {
          const announced = main.next();
          if (announced !== null) predictor.announceToken({ epoch: 1, sequence: 1, ...announced });
          return announced !== null;
        };
        predictor.begin(begin(1, { optimistic, maxPositions, tokenIds: [0, 1, 2].map(token) }));
        for (const event of events) {
          if (event === 'main' && !tooLate()) announce();
          else if (event === 'hold') model.heldLayer = 1;
          else if (event === 'let') model.resume();
          else await settled();
        }
        model.release();
        do await settled();
        while (announce());
        await settled();
        assert.deepEqual(failures, []);
        assert.deepEqual(
          model.ran,
          Array.from({ length: maxPositions }, (_, position) => token(position)),
        );
        for (const pass of main.passes) {
          for (let position = pass.begin; position < pass.begin + pass.rows; position += 1) {
            for (let layer = 0; layer < SHAPE.expertLayers; layer += 1) {
              const set = sets.get(`${pass.begin}/${layer}`) ?? [];
              const missing = chosen(position, token(position), layer).filter((expert) => !set.includes(expert));
              assert.deepEqual(missing, [], `pass ${pass.begin}+${pass.rows}, position ${position}, layer ${layer}`);
            }
          }
        }
        await predictor.stop();
      }),
      { numRuns: 300 },
    );
  });
});
