import assert from 'node:assert/strict';
import { join } from 'node:path';
import * as fc from 'fast-check';
import {
  generateTokens,
  type GenerationOptions,
  type GenerationOutcome,
  StopStrings,
} from '../../engine/generation/generate-tokens.js';
import type { PromptLogitsObserver } from '../../engine/generation/prompt-logprobs.js';
import type { SequenceRunner } from '../../engine/generation/sequence-runner.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { WallRuntime } from '../../shared/base/runtime/wall-runtime.js';
import type { TokenReply } from '../../shared/wire/messages.js';
import { loadTokenizer } from '../../shared/language/tokenizer/load-tokenizer.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';
import { resolveSampling } from '../../shared/wire/sampling-options.js';
import { scriptedConstraint } from './scripted-constraint.js';

const VOCABULARY = 1024;
const EOS = 1;

/** A sequence whose most likely tokens are the given ones, one after another. It records the calls. */
class ScriptedRunner implements SequenceRunner {
  readonly calls: string[] = [];
  private next = 0;

  constructor(
    private readonly script: readonly number[],
    private readonly onDecode: (count: number) => void = () => undefined,
  ) {}

  async prefill(tokenIds: readonly number[], onLogits?: PromptLogitsObserver): Promise<Float32Array> {
    this.calls.push(`prefill ${tokenIds.join(',')}`);
    for (let position = 0; onLogits !== undefined && position < tokenIds.length - 1; position++) {
      onLogits(
        position,
        Float32Array.from({ length: VOCABULARY }, (_, id) => (id === position ? 5 : 0)),
      );
    }
    return this.logits();
  }

  async decode(tokenId: number): Promise<Float32Array> {
    this.calls.push(`decode ${tokenId}`);
    this.onDecode(this.next);
    return this.logits();
  }

  failed({ code }: OdmoeError): void {
    this.calls.push(`failed ${code}`);
  }

  async end(): Promise<void> {
    this.calls.push('end');
  }

  private logits(): Float32Array {
    const logits = new Float32Array(VOCABULARY);
    logits[this.script[this.next++] ?? EOS] = 10;
    return logits;
  }
}

const OPTIONS: GenerationOptions = {
  maxTokens: 100,
  sampling: resolveSampling(null, () => 0),
  stop: [],
  ignoreEos: false,
  eosTokenIds: [EOS],
  logprobs: 0,
  constraint: null,
  promptLogprobs: false,
  showSpecialTokens: false,
};

const runtime = new WallRuntime();

async function collect(
  runner: SequenceRunner,
  options: Partial<GenerationOptions>,
  tokenizer: Tokenizer | null,
  signal: AbortSignal = new AbortController().signal,
): Promise<{ tokens: TokenReply[]; outcome: GenerationOutcome }> {
  const generation = generateTokens(runner, [7, 8], { ...OPTIONS, ...options }, tokenizer, signal, runtime);
  const tokens: TokenReply[] = [];
  let step = await generation.next();
  for (; step.done !== true; step = await generation.next()) {
    if (step.value.kind === 'token') tokens.push(step.value.token);
  }
  return { tokens, outcome: step.value };
}

describe('the token loop', () => {
  let tokenizer: Tokenizer;
  before(async () => {
    tokenizer = await loadTokenizer(join(packageRoot(), 'models', 'demo'));
  });

  it('prefills, decodes each token but the last, and ends the sequence', async () => {
    const runner = new ScriptedRunner([50, 51, EOS]);
    const { outcome } = await collect(runner, {}, null);
    assert.deepEqual(runner.calls, ['prefill 7,8', 'decode 50', 'decode 51', 'end']);
    assert.deepEqual(outcome, { finishReason: 'stop', stopString: '', text: '', tokenIds: [50, 51, EOS] });
  });

  it('ends with "length" after maxTokens', async () => {
    const runner = new ScriptedRunner([50, 51, 52, 53]);
    const { outcome } = await collect(runner, { maxTokens: 3 }, null);
    assert.deepEqual(outcome.tokenIds, [50, 51, 52]);
    assert.equal(outcome.finishReason, 'length');
    assert.equal(runner.calls.length, 4);
  });

  it('runs the prompt alone where no token is requested', async () => {
    const runner = new ScriptedRunner([50]);
    const { tokens, outcome } = await collect(runner, { maxTokens: 0 }, null);
    assert.deepEqual(runner.calls, ['prefill 7,8', 'end']);
    assert.deepEqual([tokens, outcome.finishReason, outcome.text], [[], 'length', '']);
  });

  it('reports progress of the prompt in several messages before the first token, on request', async () => {
    const promptIds = Array.from({ length: 150 }, (_, index) => (index % 3 === 0 ? index : 999));
    const options = { ...OPTIONS, maxTokens: 1, logprobs: 1, promptLogprobs: true };
    const { signal } = new AbortController();
    const steps = [];
    for await (const step of generateTokens(new ScriptedRunner([50]), promptIds, options, null, signal, runtime))
      steps.push(step);
    const prompts = steps.flatMap((step) => (step.kind === 'prompt' ? [step.prompt] : []));
    assert.deepEqual(
      steps.map(({ kind }) => kind),
      ['prompt', 'prompt', 'prompt', 'token'],
    );
    assert.deepEqual(
      prompts.map(({ first, tokens }) => [first, tokens.length]),
      [
        [0, 64],
        [64, 64],
        [128, 22],
      ],
    );
    const yielded = prompts.flatMap(({ tokens }) => tokens);
    assert.deepEqual(yielded[0], { logprob: 0, top: [] });
    for (const [index, { logprob, top }] of yielded.entries()) {
      if (index === 0) continue;
      assert.equal(top[0]?.tokenId, index - 1);
      assert.equal(logprob < (top[0]?.logprob ?? 0), true, 'no token of the prompt was the likeliest');
    }
  });

  it('ends with "stop" where the output format allows nothing more', async () => {
    const constraint = scriptedConstraint(
      () => null,
      (answer) => answer.length === 2,
    );
    for (const maxTokens of [2, 9]) {
      const script = [...tokenizer.encode('a fox'), EOS];
      const { outcome } = await collect(new ScriptedRunner(script), { constraint, maxTokens }, tokenizer);
      assert.deepEqual([outcome.tokenIds, outcome.finishReason], [script.slice(0, 2), 'stop']);
      assert.equal(outcome.text, tokenizer.decode(outcome.tokenIds));
    }
  });

  it('yields to others while the tokens of the output format are computed, and can be cancelled then', async () => {
    const controller = new AbortController();
    const constraint = scriptedConstraint(() => null);
    let turns = 0;
    const counting = {
      nextTurn: (run: () => void) => {
        if (++turns === 3) controller.abort();
        return runtime.nextTurn(run);
      },
    };
    const options = { ...OPTIONS, constraint };
    const runner = new ScriptedRunner([50, 51, 52, 53]);
    const yielded: number[] = [];
    await assert.rejects(
      async () => {
        for await (const step of generateTokens(runner, [7, 8], options, null, controller.signal, counting))
          if (step.kind === 'token') yielded.push(step.token.tokenId);
      },
      { code: 'CANCELLED' },
    );
    assert.deepEqual(yielded, [50, 51]);
  });

  it('shows special tokens by their names on request, except the one that ends the answer', async () => {
    const [fox = 0] = tokenizer.encode('fox');
    const script = [2, fox, 3, fox, EOS];
    const named = (id: number) => Buffer.from(tokenizer.tokenBytes(id)).toString();
    const shown = { showSpecialTokens: true };
    const { outcome, tokens } = await collect(new ScriptedRunner(script), shown, tokenizer);
    const text = [named(2), tokenizer.decode([fox]), named(3), tokenizer.decode([fox])].join('');
    assert.equal(outcome.text, text);
    assert.equal(tokens.map((token) => token.text).join(''), text);
    assert.ok(named(2).length > 0 && named(2) !== named(3));
    const stopped = await collect(new ScriptedRunner(script), { ...shown, stop: [named(3)] }, tokenizer);
    assert.equal(stopped.outcome.text, text.slice(0, text.indexOf(named(3))));
    const past = await collect(new ScriptedRunner(script), { ...shown, ignoreEos: true, maxTokens: 5 }, tokenizer);
    assert.equal(past.outcome.text, text + named(EOS));
    assert.equal((await collect(new ScriptedRunner(script), {}, tokenizer)).outcome.text, tokenizer.decode(script));
  });

  it('continues after the end-of-sequence token on request', async () => {
    const { outcome } = await collect(new ScriptedRunner([EOS, 50, EOS]), { maxTokens: 4, ignoreEos: true }, tokenizer);
    assert.deepEqual(outcome.tokenIds, [EOS, 50, EOS, EOS]);
    assert.equal(outcome.finishReason, 'length');
  });

  it('gives log-probabilities of the raw logits', async () => {
    const sampling = { ...OPTIONS.sampling, temperature: 0.01, repetitionPenalty: 3 };
    const { tokens } = await collect(new ScriptedRunner([50]), { maxTokens: 1, logprobs: 2, sampling }, null);
    const expected = 10 - Math.log(Math.exp(10) + VOCABULARY - 1);
    assert.ok(Math.abs((tokens[0]?.logprob ?? 0) - expected) < 1e-5);
    assert.deepEqual(
      tokens[0]?.top.map((entry) => entry.tokenId),
      [50, 0],
    );
  });

  it('shows the same text delta by delta as at the end, whatever the tokens', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.integer({ min: 2, max: VOCABULARY - 1 }), { maxLength: 40 }), async (script) => {
        const { tokens, outcome } = await collect(new ScriptedRunner(script), {}, tokenizer);
        assert.equal(tokens.map((token) => token.text).join(''), outcome.text);
        assert.equal(outcome.text, tokenizer.decode(script));
      }),
    );
  });

  it('cuts the text before a stop string, wherever tokens divide it', async () => {
    const text = 'There was a small fox. She lived near the beach.';
    for (const stop of ['fox', 'all fo', '. She', 'x', 'There', 'beach.', 'll f']) {
      const { tokens, outcome } = await collect(
        new ScriptedRunner(tokenizer.encode(text)),
        { stop: [stop] },
        tokenizer,
      );
      assert.equal(outcome.text, text.slice(0, text.indexOf(stop)), stop);
      assert.equal(tokens.map((token) => token.text).join(''), outcome.text);
      assert.equal(outcome.finishReason, 'stop');
      assert.ok(tokenizer.decode(outcome.tokenIds).includes(stop), 'the tokens hold the stop string');
    }
  });

  it('cuts before the first of several stop strings', async () => {
    const script = tokenizer.encode('one two three');
    const { outcome } = await collect(new ScriptedRunner(script), { stop: ['three', 'two', 'wo t'] }, tokenizer);
    assert.equal(outcome.text, 'one ');
    assert.equal(outcome.stopString, 'two');
  });

  it('cuts before the first of two stop strings that come in one delta, whichever is listed first', () => {
    for (const stops of [
      ['late', 'early'],
      ['early', 'late'],
    ]) {
      const step = new StopStrings(stops).push('an early and a late end');
      assert.deepEqual(step, { text: 'an ', stop: 'early' }, stops.join());
    }
  });

  it('releases text that looked like the start of a stop string but was not', async () => {
    const text = 'a fox and a fog';
    const { outcome } = await collect(
      new ScriptedRunner(tokenizer.encode(text)),
      { stop: ['fog horn', 'zz'] },
      tokenizer,
    );
    assert.equal(outcome.text, text);
    assert.equal(outcome.finishReason, 'stop');
    assert.equal(outcome.stopString, '', 'its end token ended it');
  });

  it('never shows text that a stop string later cuts off', async () => {
    const word = fc.constantFrom('ab', 'ba', 'a', 'b', ' ', 'abab');
    await fc.assert(
      fc.asyncProperty(
        fc.array(word, { maxLength: 12 }),
        fc.array(word, { minLength: 1, maxLength: 3 }),
        async (words, stops) => {
          const text = words.join('');
          const stop = [stops.join('')];
          const { tokens, outcome } = await collect(new ScriptedRunner(tokenizer.encode(text)), { stop }, tokenizer);
          const cut = text.indexOf(stop[0] ?? '');
          assert.equal(outcome.text, cut < 0 ? text : text.slice(0, cut));
          assert.equal(tokens.map((token) => token.text).join(''), outcome.text);
        },
      ),
    );
  });

  it('stops with CANCELLED when the signal aborts, and ends the sequence', async () => {
    const controller = new AbortController();
    const runner = new ScriptedRunner([50, 51, 52, 53], (count) => {
      if (count === 2) controller.abort();
    });
    await assert.rejects(
      collect(runner, {}, null, controller.signal),
      (error) => error instanceof OdmoeError && error.code === 'CANCELLED',
    );
    assert.deepEqual(runner.calls, ['prefill 7,8', 'decode 50', 'decode 51', 'failed CANCELLED', 'end']);
  });

  it('has ended the sequence before it gives its outcome, or its error', async () => {
    for (const fails of [false, true]) {
      let release: () => void = () => undefined;
      let freed = false;
      const runner = new ScriptedRunner([50], () => {
        if (fails) throw new OdmoeError('NO_WORKERS', 'all gone');
      });
      runner.end = async () => {
        await new Promise<void>((resolve) => (release = resolve));
        freed = true;
      };
      let settled = false;
      const answer = collect(runner, {}, null)
        .catch(() => undefined)
        .finally(() => (settled = true));
      await new Promise((resolve) => setImmediate(resolve));
      assert.equal(settled, false, 'the sequence is still held');
      release();
      await answer;
      assert.ok(freed);
    }
  });

  it('reports an error to the sequence, ends it, and passes the error on', async () => {
    const runner = new ScriptedRunner([50, 51], () => {
      throw new OdmoeError('NO_WORKERS', 'all gone');
    });
    await assert.rejects(collect(runner, {}, null), /all gone/);
    assert.deepEqual(runner.calls, ['prefill 7,8', 'decode 50', 'failed NO_WORKERS', 'end']);
  });

  it('ends the sequence when the reader stops early', async () => {
    const runner = new ScriptedRunner([50, 51, 52]);
    for await (const step of generateTokens(runner, [7, 8], OPTIONS, null, new AbortController().signal, runtime)) {
      assert.equal(step.kind === 'token' && step.token.tokenId, 50);
      break;
    }
    assert.deepEqual(runner.calls, ['prefill 7,8', 'end']);
  });
});
