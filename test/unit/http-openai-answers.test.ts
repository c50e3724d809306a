import assert from 'node:assert/strict';
import { join } from 'node:path';
import { AnswerText } from '../../engine/generation/generate-tokens.js';
import { mergeAnswers } from '../../http-api/answer/merge-answers.js';
import type { AnswerParser, AnswerDelta } from '../../http-api/conversation/chat-request.js';
import { ChatBody, ChatStream, type ChatAnswersOptions } from '../../http-api/openai/chat-answers.js';
import { CompletionBody, CompletionStream } from '../../http-api/openai/completion-answers.js';
import { keepAliveComment } from '../../http-api/openai/openai-dialect.js';
import { ResponseAnswer, type ResponseEvent } from '../../http-api/openai/response-events.js';
import type { CallForm } from '../../http-api/openai/response-tools.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Finished, GenerateReply } from '../../shared/wire/messages.js';
import { loadTokenizer } from '../../shared/language/tokenizer/load-tokenizer.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';

const HEAD = { id: 'chatcmpl-1', created: 1, model: 'demo', system_fingerprint: 'f' };
const END: Finished = {
  finishReason: 'stop',
  text: '',
  timing: null,
  sep: null,
  reloads: 0,
  nodes: [],
  drafts: null,
  stopString: '',
  cachedTokens: 0,
};

/** A parser that takes all text as content. */
function plainParser(): AnswerParser {
  return { push: (text) => (text === '' ? [] : [{ kind: 'content', text }]), finish: () => [], lastCallWhole: false };
}

/** A parser that returns the given deltas, one list for each push. */
function scripted(pushes: AnswerDelta[][]): () => AnswerParser {
  return () => {
    let at = 0;
    const parser = {
      lastCallWhole: false,
      push: () => {
        const deltas = pushes[at++] ?? [];
        parser.lastCallWhole ||= deltas.some(({ kind }) => kind === 'toolCall');
        return deltas;
      },
      finish: () => [],
    };
    return parser;
  };
}

const SCRIPT: AnswerDelta[][] = [
  [{ kind: 'reasoning', text: 'Hm' }],
  [{ kind: 'reasoning', text: '.' }],
  [{ kind: 'content', text: 'Yes' }],
  [{ kind: 'toolCall', index: 0, id: 'call_1', name: 'add' }],
  [
    { kind: 'toolArguments', index: 0, text: '{"a"' },
    { kind: 'toolArguments', index: 0, text: ':1}' },
  ],
  [{ kind: 'toolCall', index: 1, id: 'call_2', name: 'sub' }],
];

interface Chunk {
  id: string;
  object: string;
  created: number;
  choices: {
    index: number;
    delta: { role?: string; content?: string; tool_calls?: unknown };
    logprobs: { content: { token: string; bytes: number[]; logprob: number; top_logprobs: object[] }[] } | null;
    finish_reason: string | null;
  }[];
  usage?: object;
}

describe("OpenAI's answers", () => {
  let tokenizer: Tokenizer;
  let options: ChatAnswersOptions;
  before(async () => {
    tokenizer = await loadTokenizer(join(packageRoot(), 'models', 'demo'));
    options = {
      tokenizer,
      createParser: plainParser,
      logprobs: false,
      showSpecialTokens: false,
      count: 1,
      topLogprobs: 0,
      warnings: [],
    };
  });

  /** Main's replies for an answer with these tokens. */
  function repliesOf(tokenIds: readonly number[], finishReason = 'stop'): GenerateReply[] {
    const answer = new AnswerText(tokenizer, { stop: [], showSpecialTokens: false });
    const tokens = tokenIds.map((tokenId, index): GenerateReply => {
      const text = answer.push(tokenId).text + (index === tokenIds.length - 1 ? answer.finish().text : '');
      const logprob = -index / 3;
      return { kind: 'token', token: { tokenId, text, logprob, top: [{ tokenId: 5, logprob }] } };
    });
    return [
      { kind: 'started', started: { promptTokenIds: [0, 2, 9], seed: 1 } },
      ...tokens,
      { kind: 'finished', finished: { ...END, finishReason, cachedTokens: 2 } },
    ];
  }

  function chunksOf(replies: readonly GenerateReply[], changes: Partial<ChatAnswersOptions>): Chunk[] {
    const stream = new ChatStream(HEAD, { ...options, ...changes });
    return [...replies.flatMap((reply) => stream.take(0, reply)), stream.usage()] as Chunk[];
  }

  it('begin with the role, end with the reason, and never change their head', () => {
    const ids = tokenizer.encode('The fox said "déjà vu" 🦊.');
    const chunks = chunksOf(repliesOf(ids), {});
    const usage = chunks.pop();
    for (const { id, object, created, choices } of chunks) {
      assert.deepEqual([id, object, created], ['chatcmpl-1', 'chat.completion.chunk', 1]);
      assert.equal(choices.length, 1);
      assert.ok(!('tool_calls' in (choices[0]?.delta ?? {})));
    }
    assert.deepEqual(chunks[0]?.choices[0]?.delta, { role: 'assistant', content: '' });
    assert.deepEqual(chunks.at(-1)?.choices[0]?.delta, {});
    assert.deepEqual(
      chunks.map(({ choices }) => choices[0]?.finish_reason),
      [...chunks.slice(1).map(() => null), 'stop'],
    );
    assert.ok(chunks.slice(1, -1).every(({ choices }) => (choices[0]?.delta.content ?? '') !== ''));
    assert.equal(chunks.map(({ choices }) => choices[0]?.delta.content ?? '').join(''), 'The fox said "déjà vu" 🦊.');
    assert.deepEqual(usage?.choices, []);
    assert.deepEqual(usage?.usage, {
      prompt_tokens: 3,
      completion_tokens: ids.length,
      total_tokens: 3 + ids.length,
      prompt_tokens_details: { cached_tokens: 2 },
      completion_tokens_details: { reasoning_tokens: 0 },
    });
  });

  it('carry log-probabilities with their own text, and lose none', () => {
    const ids = [...tokenizer.encode('é🦊 fox'), 1];
    const chunks = chunksOf(repliesOf(ids), { logprobs: true, topLogprobs: 1 });
    let content = '';
    const entries: { token: string; bytes: number[]; logprob: number; top_logprobs: object[] }[] = [];
    for (const { choices } of chunks) {
      content += choices[0]?.delta.content ?? '';
      entries.push(...(choices[0]?.logprobs?.content ?? []));
      assert.equal(Buffer.from(entries.flatMap(({ bytes }) => bytes)).toString('utf8'), content);
    }
    assert.equal(content, 'é🦊 fox');
    assert.equal(entries.map(({ token }) => token).join(''), content);
    assert.deepEqual(
      entries.map(({ logprob }) => logprob),
      ids.map((_, index) => -index / 3),
    );
    assert.ok(entries.every(({ top_logprobs: top }) => top.length === 1));
  });

  it('send reasoning and calls in fields of their own', () => {
    const ids = tokenizer.encode('a b c d e f').slice(0, SCRIPT.length);
    const chunks = chunksOf(repliesOf(ids), { createParser: scripted(SCRIPT), logprobs: true });
    assert.deepEqual(
      chunks.slice(0, -1).map(({ choices }) => choices[0]?.delta),
      [
        { role: 'assistant', content: '' },
        { reasoning_content: 'Hm' },
        { reasoning_content: '.' },
        { content: 'Yes' },
        { tool_calls: [{ index: 0, id: 'call_1', type: 'function', function: { name: 'add', arguments: '' } }] },
        { tool_calls: [{ index: 0, function: { arguments: '{"a"' } }] },
        { tool_calls: [{ index: 0, function: { arguments: ':1}' } }] },
        { tool_calls: [{ index: 1, id: 'call_2', type: 'function', function: { name: 'sub', arguments: '' } }] },
        {},
      ],
    );
    assert.equal(chunks.at(-2)?.choices[0]?.finish_reason, 'tool_calls');
    const listed = chunks.flatMap(({ choices }) => choices[0]?.logprobs?.content ?? []);
    assert.equal(listed.map(({ token }) => token).join(''), 'Yes');
    assert.deepEqual((chunks.at(-1)?.usage as { completion_tokens_details: object }).completion_tokens_details, {
      reasoning_tokens: 2,
    });
  });

  it('have the same content streamed and at once', () => {
    const body = new ChatBody(HEAD, { ...options, createParser: scripted(SCRIPT), count: 2 });
    for (const reply of repliesOf([4, 5, 6, 7, 8, 9], 'length')) {
      body.take(1, reply);
      body.take(0, reply);
    }
    const { choices, usage } = body.body() as { choices: { message: object; index: number }[]; usage: object };
    for (const [index, choice] of choices.entries()) {
      assert.deepEqual(choice, {
        index,
        message: {
          role: 'assistant',
          content: 'Yes',
          refusal: null,
          reasoning_content: 'Hm.',
          tool_calls: [
            { id: 'call_1', type: 'function', function: { name: 'add', arguments: '{"a":1}' } },
            { id: 'call_2', type: 'function', function: { name: 'sub', arguments: '' } },
          ],
        },
        logprobs: null,
        finish_reason: 'length',
      });
    }
    assert.deepEqual((usage as { prompt_tokens: number; completion_tokens: number }).prompt_tokens, 3);
    assert.deepEqual((usage as { prompt_tokens: number; completion_tokens: number }).completion_tokens, 12);
  });

  describe('as text completions', () => {
    const text = 'Öl im';

    /** The text's tokens as prompt, with log-probabilities -1, -2 and so on, and one token as answer. */
    function echoReplies(): GenerateReply[] {
      const ids = tokenizer.encode(text);
      const tokens = ids.map((_, index) => ({ logprob: -index, top: [{ tokenId: 40, logprob: -0.5 }] }));
      const [, ...rest] = repliesOf(tokenizer.encode(' x'));
      return [
        { kind: 'started', started: { promptTokenIds: ids, seed: 1 } },
        { kind: 'prompt', prompt: { first: 0, tokens: tokens.slice(0, 2) } },
        { kind: 'prompt', prompt: { first: 2, tokens: tokens.slice(2) } },
        ...rest,
      ];
    }

    it('echo the prompt with its log-probabilities', () => {
      const prompt = { text, tokenIds: null };
      const body = new CompletionBody(HEAD, { tokenizer, prompts: [prompt], count: 1, echo: true, logprobs: 1 });
      for (const reply of echoReplies()) body.take(0, reply);
      const { choices } = body.body() as {
        choices: { text: string; logprobs: { tokens: string[]; token_logprobs: unknown[]; text_offset: number[] } }[];
      };
      const [choice] = choices;
      assert.ok(choice !== undefined);
      const { tokens, token_logprobs: logprobs, text_offset: offsets } = choice.logprobs;
      assert.equal(choice.text, `${text} x`);
      assert.equal(tokens.join(''), choice.text);
      assert.equal(logprobs[0], null);
      assert.deepEqual(logprobs.slice(1, 3), [-1, -2]);
      assert.deepEqual(
        offsets.map((offset, index) => choice.text.slice(offset, offset + (tokens[index]?.length ?? 0))),
        tokens,
      );
    });

    it('always list the chosen token itself, under its text', () => {
      const prompt = { text: null, tokenIds: tokenizer.encode(text) };
      const stream = new CompletionStream(HEAD, { tokenizer, prompts: [prompt], count: 1, echo: false, logprobs: 0 });
      const chunks = echoReplies().flatMap((reply) => stream.take(0, reply)) as {
        choices: { logprobs: { tokens: string[]; token_logprobs: number[]; top_logprobs: object[] } }[];
      }[];
      const [first] = chunks;
      const { tokens, token_logprobs: logprobs, top_logprobs: top } = first?.choices[0]?.logprobs ?? assert.fail();
      assert.deepEqual(top, [{ [tokens[0] ?? '']: logprobs[0] }]);
    });
  });

  describe('as typed events', () => {
    const members = { model: 'demo' };
    const NO_FORMS = new Map<string, CallForm>();

    function eventsOf(
      parser: () => AnswerParser,
      replies: readonly GenerateReply[],
      logprobs = false,
    ): ResponseEvent[] {
      const answer = new ResponseAnswer('1', members, { ...options, createParser: parser, logprobs, forms: NO_FORMS });
      return replies.flatMap((reply) => answer.take(reply));
    }

    it('are numbered, and open and close each item', () => {
      const events = eventsOf(scripted(SCRIPT), repliesOf([4, 5, 6, 7, 8, 9]));
      assert.deepEqual(
        events.map((event) => event.sequence_number),
        events.map((_, index) => index),
      );
      const text = ['output_item.added', 'content_part.added', 'text.delta', 'text.done', 'content_part.done'];
      const call = ['output_item.added', 'function_call_arguments.done', 'output_item.done'];
      const [added, part, delta, done, partDone] = text;
      assert.deepEqual(
        events.map(({ type }) => type.replace('response.', '')),
        [
          'created',
          'in_progress',
          added,
          part,
          `reasoning_${delta}`,
          `reasoning_${delta}`,
          `reasoning_${done}`,
          partDone,
          'output_item.done',
          added,
          part,
          `output_${delta}`,
          `output_${done}`,
          partDone,
          'output_item.done',
          call[0],
          'function_call_arguments.delta',
          'function_call_arguments.delta',
          call[1],
          call[2],
          ...call,
          'completed',
        ],
      );
      const { output } = events.at(-1)?.['response'] as { output: object[] };
      assert.deepEqual(output, [
        {
          type: 'reasoning',
          id: 'rs_1_0',
          status: 'completed',
          summary: [],
          content: [{ type: 'reasoning_text', text: 'Hm.' }],
        },
        {
          type: 'message',
          id: 'msg_1_1',
          status: 'completed',
          role: 'assistant',
          content: [{ type: 'output_text', text: 'Yes', annotations: [], logprobs: [] }],
        },
        {
          type: 'function_call',
          id: 'fc_1_2',
          status: 'completed',
          call_id: 'call_1',
          name: 'add',
          arguments: '{"a":1}',
        },
        { type: 'function_call', id: 'fc_1_3', status: 'completed', call_id: 'call_2', name: 'sub', arguments: '' },
      ]);
    });

    it('mark a cut answer, and have a message where there is no text', () => {
      const events = eventsOf(plainParser, repliesOf([1], 'length'));
      const last = events.at(-1);
      assert.equal(last?.type, 'response.incomplete');
      const { output, incomplete_details: details } = last['response'] as {
        output: object[];
        incomplete_details: object;
      };
      assert.deepEqual(details, { reason: 'max_output_tokens' });
      assert.equal(output.length, 1);
    });

    it('end with the failure', () => {
      const answer = new ResponseAnswer('1', members, { ...options, forms: NO_FORMS });
      for (const reply of repliesOf([4, 5]).slice(0, 2)) answer.take(reply);
      const [failed] = answer.fail(new OdmoeError('WORKER_LOST', 'gone'));
      assert.equal(failed?.type, 'response.failed');
      const { status, error } = failed['response'] as { status: string; error: object };
      assert.deepEqual([status, error], ['failed', { code: 'worker_lost', message: 'gone' }]);
    });
  });

  it('keep a connection alive by comments, and report progress on request', () => {
    const progress = { phase: 'prefill', doneTokens: 3, promptTokens: 9 } as const;
    assert.equal(keepAliveComment(progress, { return_progress: false }), ': keep-alive\n\n');
    assert.equal(
      keepAliveComment(progress, { return_progress: true }),
      ': progress {"phase":"prefill","prompt_tokens_done":3,"prompt_tokens":9}\n\n',
    );
  });
});

describe('several answers of one request', () => {
  const signal = new AbortController().signal;

  async function* counting(
    ended: AbortSignal,
    log: string[],
    name: string,
    failAt = Infinity,
  ): AsyncGenerator<string, void, undefined> {
    try {
      for (let count = 0; count < 3; count++) {
        await Promise.resolve();
        if (ended.aborted) return;
        if (count === failAt) throw new Error(`${name} failed`);
        yield `${name}${count}`;
      }
    } finally {
      log.push(`${name} ended`);
    }
  }

  it('arrive interleaved, each in its order', async () => {
    const log: string[] = [];
    const names = Array.from({ length: 20 }, (_, index) => `a${index}.`);
    const sources = names.map((name) => (ended: AbortSignal) => counting(ended, log, name));
    const found = names.map((): string[] => []);
    for await (const { index, reply } of mergeAnswers(sources, signal)) found[index]?.push(reply);
    assert.deepEqual(
      found,
      names.map((name) => [0, 1, 2].map((count) => `${name}${count}`)),
    );
    assert.equal(log.length, names.length);
  });

  it('end together when one fails, or nobody listens any more', async () => {
    const log: string[] = [];
    const sources = ['a', 'b', 'c'].map(
      (name, index) => (ended: AbortSignal) => counting(ended, log, name, index === 1 ? 1 : Infinity),
    );
    await assert.rejects(async () => {
      for await (const one of mergeAnswers(sources, signal)) assert.ok(one.reply.length === 2);
    }, /b failed/);
    assert.deepEqual(log.sort(), ['a ended', 'b ended', 'c ended']);
    const others: string[] = [];
    for await (const one of mergeAnswers(
      ['a', 'b'].map((name) => (ended: AbortSignal) => counting(ended, others, name)),
      signal,
    )) {
      assert.equal(one.index, 0);
      break;
    }
    assert.deepEqual(others.sort(), ['a ended', 'b ended']);
  });
});
