import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import fc from 'fast-check';
import stringWidth from 'string-width';
import { draftOf, EMPTY_DRAFT, leftOf, removedTo, rightOf, wordLeftOf, wordRightOf } from '../../cli/chat/draft.js';
import { drawnDraft, placeInNextRow } from '../../cli/chat/draft-rows.js';
import { TerminalInput } from '../../cli/chat/terminal-input.js';
import type { TypedInput } from '../../cli/chat/line-input.js';

const FRAME = { columns: 10, rows: 5, prompt: '> ', morePrompt: '... ' };
const FAMILY = '👨‍👩‍👧';

const [UP, DOWN, RIGHT, LEFT] = ['\u001b[A', '\u001b[B', '\u001b[C', '\u001b[D'];
const [HOME, END] = ['\u001b[H', '\u001b[F'];
const [ALT_ENTER, ENTER, BACKSPACE] = ['\u001b\r', '\r', '\u007f'];
const CONTROL = (letter: string): string => String.fromCharCode(letter.charCodeAt(0) - 96);

describe('a draft', () => {
  it('moves and removes by the characters that a user sees, and by words', () => {
    const draft = draftOf(`a ${FAMILY}é`);
    assert.equal(leftOf(draft), draft.text.length - 1);
    const family = { ...draft, cursor: 2 };
    assert.equal(rightOf(family), 2 + FAMILY.length);
    assert.equal(removedTo(family, rightOf(family)).draft.text, 'a é');
    const words = { text: 'one  two three', cursor: 8 };
    assert.equal(wordLeftOf(words), 5);
    assert.equal(wordRightOf(words), 14);
    assert.deepEqual([leftOf(EMPTY_DRAFT), rightOf(EMPTY_DRAFT), wordLeftOf(EMPTY_DRAFT)], [0, 0, 0]);
  });

  it('is shown in rows that fit, of which those around the cursor are drawn', () => {
    const texts = (text: string, cursor: number): string[] =>
      drawnDraft({ text, cursor }, FRAME).rows.map((row) => row.text);
    assert.deepEqual(texts('', 0), ['> ']);
    assert.deepEqual(texts('12345678', 0), ['> 12345678', '']);
    assert.deepEqual(texts('123456789\nab', 0), ['> 12345678', '9', '... ab']);
    assert.deepEqual(texts('1234567日本', 0), ['> 1234567', '日本'], 'a wide character is never cut');
    assert.deepEqual(texts('a\tb\u001b', 0), ['> a    b', '\\x1b']);
    const long = 'x'.repeat(100_000);
    for (const cursor of [0, 50_000, 100_000]) {
      const drawn = drawnDraft({ text: long, cursor }, FRAME);
      assert.equal(drawn.rows.length, FRAME.rows);
      assert.ok(drawn.cursorRow < FRAME.rows);
    }
  });

  it('has its cursor in one place of its rows, whatever is typed', () => {
    const text = fc.string({ unit: fc.constantFrom('a', ' ', '日', FAMILY, '\n', '\t', 'é'), maxLength: 60 });
    fc.assert(
      fc.property(text, fc.nat(), (typed, place) => {
        let draft = draftOf(typed);
        for (let steps = place % 60; steps > 0; steps -= 1) draft = { ...draft, cursor: leftOf(draft) };
        const { rows, cursorRow, cursorColumn } = drawnDraft(draft, FRAME);
        const row = rows[cursorRow];
        assert.ok(row?.places.some(({ index, column }) => index === draft.cursor && column === cursorColumn));
        assert.ok(rows.every((each) => stringWidth(each.text) <= FRAME.columns));
        const below = placeInNextRow(draft, 1, FRAME);
        if (below !== null) assert.ok(below > draft.cursor);
      }),
    );
  });
});

/** What a terminal shows after it was sent these texts: it knows what TerminalInput sends, and fails at all else. */
class Screen {
  private readonly rows: string[][] = [[]];
  private row = 0;
  private column = 0;

  constructor(private readonly columns: number) {}

  write(text: string): void {
    const parts = text.match(/\u001b\[[?0-9]*[A-Za-z]|\r|\n|[^\u001b\r\n]+/g) ?? [];
    for (const part of parts) this.take(part);
  }

  get shown(): string {
    return this.rows
      .map((row) => row.join('').trimEnd())
      .join('\n')
      .trimEnd();
  }

  get cursor(): [number, number] {
    return [this.row, this.column];
  }

  private take(part: string): void {
    const count = Number(/\d+/.exec(part)?.[0] ?? 1);
    if (part === '\r') this.column = 0;
    else if (part === '\n') this.rows[(this.row += 1)] ??= [];
    else if (part.endsWith('A') && part.startsWith('\u001b')) this.row -= count;
    else if (part.endsWith('C') && part.startsWith('\u001b')) this.column += count;
    else if (part === '\u001b[K') this.rows[this.row]?.splice(this.column);
    else if (part === '\u001b[J') {
      this.rows[this.row]?.splice(this.column);
      this.rows.splice(this.row + 1);
    } else if (!/^\u001b\[\?2004[hl]$/.test(part)) this.print(part);
    assert.ok(this.row >= 0, 'the cursor left the screen');
  }

  private print(text: string): void {
    assert.ok(!text.startsWith('\u001b'), `an unknown sequence: ${JSON.stringify(text)}`);
    const row = this.rows[this.row];
    assert.ok(row !== undefined);
    for (const character of text) {
      assert.ok(this.column < this.columns, 'a row is longer than the terminal');
      row[this.column] = character;
      this.column += 1;
    }
  }
}

/** A user at a terminal. */
class Typist {
  readonly screen = new Screen(20);
  readonly lines: TerminalInput;
  private readonly input = Object.assign(new PassThrough(), { isTTY: true, setRawMode: () => this.input });
  private readonly terminal = Object.assign(new PassThrough(), { columns: 20, rows: 10 });

  constructor(entries: readonly string[] = []) {
    this.terminal.on('data', (data: Buffer) => this.screen.write(data.toString()));
    const [input, terminal] = [this.input, this.terminal] as unknown as [NodeJS.ReadStream, NodeJS.WriteStream];
    this.lines = new TerminalInput(input, terminal, entries);
  }

  /** Types keys, each in a chunk of its own, until one sends the line. */
  async send(...keys: string[]): Promise<TypedInput> {
    const next = this.lines.next('> ');
    for (const key of [...keys, ENTER]) this.input.write(key);
    return next;
  }

  /** What the screen shows after these keys. */
  async shows(...keys: string[]): Promise<string> {
    void this.lines.next('> ');
    for (const key of keys) this.input.write(key);
    await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
    return this.screen.shown;
  }

  end(): void {
    this.input.end();
  }
}

describe('a line that is typed', () => {
  it('is edited by the usual keys', async () => {
    const typed: [string[], string][] = [
      [['hello'], 'hello'],
      [['helo', LEFT, 'l'], 'hello'],
      [['xab', HOME, RIGHT, BACKSPACE, END, 'c'], 'abc'],
      [['one two three', CONTROL('w'), CONTROL('w'), CONTROL('y')], 'one two '],
      [['one two', '\u001bb', CONTROL('k'), HOME, CONTROL('y'), ' '], 'two one '],
      [['ab', CONTROL('u'), 'c'], 'c'],
      [['ab', HOME, CONTROL('d'), '\u001b[3~', 'c'], 'c'],
      [['a', '\u001b[99;9u', '\u0000', 'b'], 'ab'],
    ];
    for (const [keys, text] of typed) assert.deepEqual(await new Typist().send(...keys), { kind: 'line', text });
  });

  it('keeps what is right of the cursor at Up, and Down brings the draft back', async () => {
    const earlier = ['first', 'second'];
    const draft = ['what is right', ...Array.from({ length: 6 }, () => LEFT)];
    assert.deepEqual(await new Typist(earlier).send(...draft, UP, DOWN, '!'), { kind: 'line', text: 'what is! right' });
    assert.deepEqual(await new Typist(earlier).send('draft', UP, UP, UP), { kind: 'line', text: 'first' });
    assert.deepEqual(await new Typist(earlier).send('draft', UP, '!', UP, DOWN), { kind: 'line', text: 'second!' });
    const typist = new Typist(earlier);
    await typist.send('third');
    assert.deepEqual(await typist.send(UP), { kind: 'line', text: 'third' });
    assert.deepEqual(await typist.send(UP, UP), { kind: 'line', text: 'second' });
  });

  it('moves by rows where it is longer than the terminal, before it goes to the lines of before', async () => {
    const long = '1234567890'.repeat(4);
    const inserted = `${long.slice(0, 20)}x${long.slice(20)}`;
    assert.deepEqual(await new Typist(['first']).send(long, UP, 'x'), { kind: 'line', text: inserted });
    assert.deepEqual(await new Typist(['first']).send(long, UP, UP, DOWN, 'x'), { kind: 'line', text: inserted });
    assert.deepEqual(await new Typist(['first']).send(long, UP, UP, UP), { kind: 'line', text: 'first' });
  });

  it('has several lines by Alt-Enter, Shift-Enter or a paste, and is one message', async () => {
    for (const key of [ALT_ENTER, '\u001b[13;2u', '\u001b[200~\r\n\u001b[201~']) {
      assert.deepEqual(await new Typist().send('a', key, 'b'), { kind: 'paste', text: 'a\nb' });
    }
    const typist = new Typist();
    assert.deepEqual(await typist.send('a', ALT_ENTER, 'b', UP, HOME, '1'), { kind: 'paste', text: '1a\nb' });
    assert.deepEqual(await typist.send(UP), { kind: 'paste', text: '1a\nb' });
  });

  it('is dropped by Ctrl-C, and Ctrl-D ends an empty one', async () => {
    const typist = new Typist();
    assert.deepEqual(await typist.send('ab', CONTROL('c')), { kind: 'interrupt', hadText: true });
    assert.deepEqual(await typist.lines.next('> '), { kind: 'line', text: '' }, 'the Enter that came behind it');
    assert.deepEqual(await typist.send(CONTROL('c')), { kind: 'interrupt', hadText: false });
    const other = new Typist();
    assert.deepEqual(await other.send(CONTROL('d')), { kind: 'end' });
    const cut = new Typist();
    cut.end();
    assert.deepEqual(await cut.lines.next('> '), { kind: 'end' });
    assert.deepEqual(await cut.lines.next('> '), { kind: 'end' });
  });

  it('may come in one chunk with others', async () => {
    const typist = new Typist();
    assert.deepEqual(await typist.send('one\rtwo\rth'), { kind: 'line', text: 'one' });
    assert.deepEqual(await typist.lines.next('> '), { kind: 'line', text: 'two' });
    assert.deepEqual(await typist.lines.next('> '), { kind: 'line', text: 'th' });
  });

  it('is drawn as it is, with the cursor in its place, also after Home in a wrapped line', async () => {
    const long = 'abcdefghijklmnopqrstuvwxyz';
    const typist = new Typist();
    assert.equal(await typist.shows(long, HOME, 'x'), '> xabcdefghijklmnopq\nrstuvwxyz');
    assert.deepEqual(typist.screen.cursor, [0, 3]);
    assert.equal(await typist.shows(CONTROL('k')), '> x');
    assert.equal(await typist.shows(ALT_ENTER, 'y', LEFT), '> x\n... y');
    assert.deepEqual(typist.screen.cursor, [1, 4]);
  });

  it('is drawn as it is after any keys', async () => {
    const keys = fc.constantFrom('a', 'word ', LEFT, RIGHT, UP, DOWN, HOME, END, ALT_ENTER, BACKSPACE, CONTROL('k'));
    await fc.assert(
      fc.asyncProperty(fc.array(keys, { maxLength: 40 }), async (typed) => {
        const once = new Typist(['one', 'a line of before that is longer']);
        const stepwise = new Typist(['one', 'a line of before that is longer']);
        const atOnce = await once.shows(typed.join(''));
        for (const key of typed) await stepwise.shows(key);
        assert.equal(typed.length === 0 ? atOnce : stepwise.screen.shown, atOnce);
        if (typed.length > 0) assert.deepEqual(stepwise.screen.cursor, once.screen.cursor);
      }),
      { numRuns: 60 },
    );
  });
});
