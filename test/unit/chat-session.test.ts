import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { ChatSession, type ChatOptions, turnSummary } from '../../cli/chat/chat-session.js';
import { EMPTY_TERMINAL_CONVERSATION } from '../../cli/chat/conversation.js';
import { PipedInput, type LineInput, type TypedInput } from '../../cli/chat/line-input.js';
import type { Interruption } from '../../cli/client/interrupt.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import type { Finished, GenerateReply, GenerateRequest } from '../../shared/wire/messages.js';

const SETTINGS = {
  sampling: { temperature: 0, topK: 0, topP: 1, minP: 0, repetitionPenalty: 1 },
  maxTokens: null,
};

const FINISHED: Finished = {
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

/** One step of a scripted model: a delta of its answer, an error, or an interruption by a signal. */
type Step = string | { error: ErrorCode } | { signal: NodeJS.Signals };

/** A conversation with a scripted model and a scripted user. */
class ScriptedChat {
  readonly requests: GenerateRequest[] = [];
  readonly notes: string[] = [];
  readonly kept: string[] = [];
  answers = '';
  readonly session: ChatSession;
  private readonly interruption: Interruption = { by: null };

  constructor(
    private readonly model: Step[][],
    inputs: readonly (string | TypedInput)[] | LineInput,
    isInteractive = true,
  ) {
    const options: ChatOptions = {
      lines: isLineInput(inputs) ? inputs : scriptedLines(inputs),
      generate: (request) => this.generate(request),
      interruptible: (run) => {
        this.interruption.by = null;
        return run(new AbortController().signal, this.interruption);
      },
      answer: (text) => (this.answers += text),
      note: (text) => this.notes.push(text),
      typed: async (lines) => void this.kept.push(...lines),
      isInteractive,
      templateArguments: [],
    };
    this.session = new ChatSession(EMPTY_TERMINAL_CONVERSATION, SETTINGS, options);
  }

  /** Contents of the messages of a request, as "user: text". */
  messages(index: number): string[] {
    return this.requests[index]?.messages.map(({ role, content }) => `${role}: ${content}`) ?? [];
  }

  private async *generate(request: GenerateRequest): AsyncGenerator<GenerateReply> {
    this.requests.push(request);
    yield { kind: 'started', started: { promptTokenIds: [1], seed: 1 } };
    let text = '';
    for (const step of this.model[this.requests.length - 1] ?? ['...']) {
      if (typeof step !== 'string') {
        if ('error' in step) throw new OdmoeError(step.error, `the model says ${step.error}`);
        this.interruption.by = step.signal;
        throw new OdmoeError('CANCELLED', 'cancelled');
      }
      text += step;
      yield { kind: 'token', token: { tokenId: 1, text: step, logprob: 0, top: [] } };
    }
    yield { kind: 'finished', finished: { ...FINISHED, text } };
  }
}

function isLineInput(inputs: readonly (string | TypedInput)[] | LineInput): inputs is LineInput {
  return 'next' in inputs;
}

function scriptedLines(inputs: readonly (string | TypedInput)[]): LineInput {
  const rest = inputs.map((input) => (typeof input === 'string' ? { kind: 'line' as const, text: input } : input));
  return { next: async () => rest.shift() ?? { kind: 'end' }, close: () => undefined };
}

describe('a conversation on the terminal', () => {
  it('sends each message with all earlier ones and the current settings', async () => {
    const chat = new ScriptedChat(
      [['he', 'llo'], ['fine']],
      ['/system Be brief.', 'hi', '', '/set temperature 0.5', '/set max_tokens 9', 'how are you?', '/exit', 'more'],
    );
    await chat.session.run();
    assert.equal(chat.answers, 'hello\nfine\n');
    assert.deepEqual(chat.messages(1), ['system: Be brief.', 'user: hi', 'assistant: hello', 'user: how are you?']);
    assert.equal(chat.requests[0]?.maxTokens, 2 ** 32 - 1, 'as much as there is room for');
    assert.equal(chat.requests[1]?.maxTokens, 9);
    assert.equal(chat.requests[1]?.sampling?.temperature, 0.5);
    assert.equal(chat.requests.length, 2, '/exit ends it');
    assert.deepEqual(chat.kept.slice(0, 2), ['/system Be brief.', 'hi']);
  });

  it('keeps the text of an answer that was stopped', async () => {
    const chat = new ScriptedChat([['one ', 'two', { signal: 'SIGINT' }], ['ok']], ['count', 'go on']);
    await chat.session.run();
    assert.deepEqual(chat.messages(1), ['user: count', 'assistant: one two', 'user: go on']);
    assert.equal(chat.answers, 'one two\nok\n');
    assert.match(chat.notes[0] ?? '', /stopped after 2 tokens; what came stays/);
  });

  it('keeps nothing of an answer that was stopped before it began', async () => {
    const chat = new ScriptedChat([[{ signal: 'SIGINT' }], ['ok']], ['count', 'something else']);
    await chat.session.run();
    assert.deepEqual(chat.messages(1), ['user: something else']);
    assert.match(chat.notes[0] ?? '', /nothing had come/);
  });

  it('keeps no answer without text: no model takes an empty message', async () => {
    const chat = new ScriptedChat([[], ['ok']], ['count', '/retry']);
    await chat.session.run();
    assert.deepEqual(chat.messages(1), ['user: count']);
    assert.match(chat.notes[0] ?? '', /no text, and is not kept/);
  });

  it('ends when its process is to end', async () => {
    const chat = new ScriptedChat([['one', { signal: 'SIGTERM' }]], ['count', 'more']);
    await assert.rejects(chat.session.run(), { code: 'CANCELLED' });
    assert.equal(chat.requests.length, 1);
  });

  it('prints what to do after a turn that failed, and goes on', async () => {
    const chat = new ScriptedChat(
      [['half', { error: 'NO_WORKERS' }], ['b'], [{ error: 'PROMPT_TOO_LONG' }], ['d']],
      ['a', '/retry', 'c', '/undo', '/retry'],
    );
    await chat.session.run();
    assert.deepEqual(chat.messages(1), ['user: a'], 'the half answer is not kept');
    assert.deepEqual(chat.messages(3), ['user: c'], '/undo made room for what had been refused');
    const said = chat.notes.join('\n');
    assert.match(said, /the model says NO_WORKERS \[NO_WORKERS\]\n\/retry asks again/);
    assert.match(said, /\[PROMPT_TOO_LONG\]\nThe conversation has become too long.*\/undo.*\/clear/);
  });

  it('asks again on demand, and stays unchanged where that fails', async () => {
    const chat = new ScriptedChat([['b'], [{ error: 'NO_WORKERS' }], ['d']], ['a', '/retry', 'c']);
    await chat.session.run();
    assert.deepEqual(chat.messages(1), ['user: a']);
    assert.deepEqual(chat.messages(2), ['user: a', 'assistant: b', 'user: c']);
  });

  it('reports mistakes and a Ctrl-C with nothing to stop, and drops unfinished lines', async () => {
    const interrupt = (hadText: boolean): TypedInput => ({ kind: 'interrupt', hadText });
    const chat = new ScriptedChat(
      [['ok']],
      ['/stat', '/undo', '/retry', '/save', interrupt(false), '"""', 'lost', interrupt(false), interrupt(true), 'hi'],
    );
    await chat.session.run();
    assert.deepEqual(chat.messages(0), ['user: hi']);
    const [unknown, undo, retry, save, ...rest] = chat.notes;
    assert.match(unknown ?? '', /no command \/stat.*\[USAGE\]/);
    assert.match(undo ?? '', /no turn to drop/);
    assert.match(retry ?? '', /nothing has been asked/);
    assert.match(save ?? '', /\/save has no file/);
    assert.deepEqual(rest.filter((note) => note.includes('Ctrl-D')).length, 1);
  });

  it('takes a paste as one message, whatever it begins with', async () => {
    const chat = new ScriptedChat([['ok']], [{ kind: 'paste', text: '/clear\nsecond line\n' }]);
    await chat.session.run();
    assert.deepEqual(chat.messages(0), ['user: /clear\nsecond line']);
    assert.deepEqual(chat.kept, ['/clear', 'second line', '']);
  });

  it('can be saved and loaded', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'odmoe-chat-'));
    try {
      const path = join(directory, 'talk.jsonl');
      const saving = ['a', `/save ${path}`, 'c', '/save', '/clear', 'e', '/save', `/save ${path}`];
      const first = new ScriptedChat([['b'], ['d']], saving);
      await first.session.run();
      assert.ok(first.notes.includes(`saved 2 turns to ${path}`));
      assert.match(first.notes.join('\n'), /\/save has no file[^]*is there already/, 'the new one has no file yet');
      const second = new ScriptedChat([['f']], [`/load ${path}`, '/load /nowhere', 'e', '/save']);
      await second.session.run();
      assert.deepEqual(second.messages(0), ['user: a', 'assistant: b', 'user: c', 'assistant: d', 'user: e']);
      assert.equal(second.notes.at(-1)?.includes(`saved 3 turns to ${path}`), true);
    } finally {
      await rm(directory, { recursive: true });
    }
  });

  it('reports a full context, and only then', () => {
    const token = { tokenId: 1, text: 'a', logprob: 0, top: [] };
    const result = (finishReason: string) => ({
      started: { promptTokenIds: [1], seed: 1 },
      promptLogprobs: [],
      tokens: [token, token],
      finished: { ...FINISHED, finishReason },
    });
    assert.match(turnSummary(result('length'), null), /context is full: \/undo/);
    assert.match(turnSummary(result('length'), 3), /context is full/);
    assert.doesNotMatch(turnSummary(result('length'), 2), /full/);
    assert.doesNotMatch(turnSummary(result('stop'), null), /full/);
  });
});

describe('a conversation from a pipe', () => {
  function piped(text: string): LineInput {
    const input = Object.assign(new PassThrough(), { isTTY: false, fd: 0, setRawMode: () => input });
    input.end(text);
    return new PipedInput(input);
  }

  it('takes each line as a turn, and prints the answers alone', async () => {
    const lines = piped('one\r\n"""two\nthree"""\n/set seed 3\nlast');
    const chat = new ScriptedChat([['1'], ['2'], ['3']], lines, false);
    await chat.session.run();
    lines.close();
    assert.equal(chat.answers, '1\n2\n3\n');
    assert.deepEqual(
      chat.requests.map(({ messages }) => messages.at(-1)?.content),
      ['one', 'two\nthree', 'last'],
    );
    assert.equal(chat.requests[2]?.sampling?.seed, 3);
    assert.equal(chat.notes.length, 1, 'of /set');
  });

  it('ends with its first failure', async () => {
    const failing = new ScriptedChat([[{ error: 'NO_WORKERS' }]], piped('one\ntwo\n'), false);
    await assert.rejects(failing.session.run(), { code: 'NO_WORKERS' });
    assert.equal(failing.requests.length, 1);
    await assert.rejects(new ScriptedChat([], piped('/wrong\n'), false).session.run(), { code: 'USAGE' });
    const stopped = new ScriptedChat([['a', { signal: 'SIGINT' }]], piped('one\n'), false);
    await assert.rejects(stopped.session.run(), { code: 'CANCELLED' });
  });
});
