import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import { join } from 'node:path';
import {
  type FormatQuestion,
  type FormatThread,
  startFormatThread,
  ThreadedFormatCompiler,
} from '../../engine/sampling/format-compiler.js';
import { OutputFormats } from '../../engine/sampling/output-formats.js';
import type { ThreadAnswer, ThreadQuestion } from '../../engine/threads/thread-queue.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { compileFormat } from '../../engine/output-format/format-grammar.js';
import type { OutputFormat } from '../../shared/wire/messages.js';
import {
  type CompiledGrammar,
  packGrammar,
  type PackedGrammar,
  unpackGrammar,
} from '../../engine/output-format/packed-grammar.js';
import { shortestTexts } from '../../engine/output-format/shortest-texts.js';
import { WallRuntime } from '../../shared/base/runtime/wall-runtime.js';
import { loadTokenizer } from '../../shared/language/tokenizer/load-tokenizer.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';
import { runAtOnce } from '../../shared/base/runtime/work-steps.js';

const ANY_BYTE = new Uint8Array(256).fill(1);
const never = new AbortController().signal;

function formatOf(...schemas: readonly object[]): OutputFormat {
  return {
    alternatives: schemas.map((schema) => ({ parts: [{ kind: 'jsonSchema', jsonSchema: JSON.stringify(schema) }] })),
  };
}

const MANY = { enum: Array.from({ length: 5000 }, (_, index) => `value ${index}`) };
const FORMATS: readonly [string, OutputFormat][] = [
  ['any value', formatOf({})],
  [
    'an object',
    formatOf({ type: 'object', properties: { a: { type: 'number' }, b: { minItems: 2 } }, required: ['b'] }),
  ],
  ['a pattern with lengths', formatOf({ type: 'string', pattern: '^(a|b)*c{2,5}', maxLength: 40, minLength: 3 })],
  [
    'schemas that name themselves',
    formatOf({
      $defs: { tree: { type: 'object', properties: { next: { $ref: '#/$defs/tree' } } } },
      $ref: '#/$defs/tree',
    }),
  ],
  ['many values', formatOf(MANY)],
  [
    'texts, and a text that a schema takes',
    {
      alternatives: [
        {
          parts: [
            { kind: 'literal', literal: '<é>' },
            { kind: 'until', until: 'aab' },
          ],
        },
        { parts: [{ kind: 'schemaText', schemaText: { jsonSchema: '{"maxLength": 3}', without: '</' } }] },
      ],
    },
  ],
];

function compiled(format: OutputFormat): { grammar: CompiledGrammar; packed: PackedGrammar } {
  const { root, nodes } = compileFormat(format);
  const shortest = shortestTexts(nodes, ANY_BYTE);
  return { grammar: { root, shortest }, packed: packGrammar(root, nodes, shortest) };
}

describe('an output format compiled elsewhere', function () {
  this.timeout(60_000);

  for (const [what, format] of FORMATS) {
    it(`is the same behind its way as numbers: ${what}`, () => {
      const { grammar, packed } = compiled(format);
      const unpacking = unpackGrammar(packed);
      let [step, steps] = [unpacking.next(), 1];
      for (; step.done !== true; steps += 1) step = unpacking.next();
      assert.deepEqual(step.value, grammar);
      if (what === 'many values') assert.ok(steps > 5, `${steps} steps`);
    });
  }

  describe('in a thread', () => {
    let tokenizer: Tokenizer;
    let compiler: ThreadedFormatCompiler;
    before(async () => {
      tokenizer = await loadTokenizer(join(packageRoot(), 'models', 'demo'));
      compiler = new ThreadedFormatCompiler({
        startThread: startFormatThread,
        queueLimit: 8,
        runtime: new WallRuntime(),
      });
    });
    after(() => compiler.close());

    it('gives the same masks as one compiled in place, and is cached', async () => {
      for (const [what, format] of FORMATS) {
        const [here, there] = [null, compiler].map((one) => new OutputFormats(tokenizer, 1024, [0], one));
        const inPlace = await here?.constraintOf(format, never);
        const elsewhere = await there?.constraintOf(format, never);
        for (const room of [1, 50, 1000]) {
          const [found, expected] = [elsewhere, inPlace].map((one) => one && runAtOnce(one.allowed([], room)));
          assert.deepEqual(found, expected, what);
        }
        assert.ok(!(there?.constraintOf(format, never) instanceof Promise), `${what} is compiled a second time`);
      }
    });

    it('leaves the event loop free', async () => {
      await compiler.compile(formatOf({}), ANY_BYTE, never);
      let done = false;
      const compiling = compiler.compile(formatOf(MANY), ANY_BYTE, never).finally(() => (done = true));
      let turns = 0;
      for (; !done; turns += 1) await new Promise((resolve) => setImmediate(resolve));
      await compiling;
      assert.ok(turns > 20, `${turns} turns of the event loop`);
    });

    it('is refused with the same message as elsewhere', async () => {
      const formats = new OutputFormats(tokenizer, 1024, [0], compiler);
      await assert.rejects(async () => formats.constraintOf(formatOf({ type: 'string', pattern: '(' }), never), {
        code: 'REQUEST_INVALID',
        field: 'sampling.output_format',
      });
    });
  });
});

/** A thread that answers when the test says so. */
class ScriptedThread extends EventEmitter implements FormatThread {
  readonly questions: ThreadQuestion<FormatQuestion>[] = [];
  terminated = false;

  postMessage(question: ThreadQuestion<FormatQuestion>): void {
    this.questions.push(question);
  }

  answer(): void {
    const question = this.questions.at(-1);
    if (question === undefined) return;
    const result = compiled(question.request.format).packed;
    const answer: ThreadAnswer<PackedGrammar> = { id: question.id, kind: 'done', result };
    this.emit('message', answer);
  }

  async terminate(): Promise<void> {
    this.terminated = true;
    this.emit('exit');
  }
}

describe('several answers with one output format', () => {
  let thread: ScriptedThread;
  let compiler: ThreadedFormatCompiler;
  let formats: OutputFormats;
  beforeEach(() => {
    thread = new ScriptedThread();
    compiler = new ThreadedFormatCompiler({ startThread: () => thread, queueLimit: 8, runtime: new WallRuntime() });
    const tokenizer = { tokenBytes: (id: number) => Uint8Array.of(id), isSpecial: () => false } as unknown as Tokenizer;
    formats = new OutputFormats(tokenizer, 256, [0], compiler);
  });
  afterEach(() => compiler.close());

  const ask = (signal = never, type = 'null'): Promise<unknown> =>
    Promise.resolve(formats.constraintOf(formatOf({ type }), signal));

  it('wait for one compilation, and a cancelled one takes nothing from the others', async () => {
    const gone = new AbortController();
    const [first, second] = [ask(gone.signal), ask()];
    assert.equal(thread.questions.length, 1);
    gone.abort();
    await assert.rejects(first, { code: 'CANCELLED' });
    thread.answer();
    assert.ok((await second) !== null);
  });

  it('start a new compilation after all earlier waiters were cancelled', async () => {
    const gone = new AbortController();
    const both = [ask(gone.signal), ask(gone.signal)].map((one) => assert.rejects(one, { code: 'CANCELLED' }));
    gone.abort();
    await Promise.all(both);
    const later = ask();
    thread.answer();
    thread.answer();
    assert.ok((await later) !== null);
    assert.equal(thread.questions.length, 2);
  });

  it('stop the compilation when all waiters were cancelled', async () => {
    const gone = new AbortController();
    const [first, second] = [ask(), ask(gone.signal, 'boolean')];
    gone.abort();
    await assert.rejects(second, { code: 'CANCELLED' });
    thread.answer();
    assert.ok((await first) !== null);
    assert.equal(thread.questions.length, 1, 'the thread is not asked for the second one');
  });

  it('get an error when main stops', async () => {
    const waiting = assert.rejects(ask(), { code: 'NO_MAIN' });
    await compiler.close();
    await waiting;
    assert.ok(thread.terminated);
  });
});
