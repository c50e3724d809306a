import { createInterface, type Interface } from 'node:readline';

/** Input from the user. */
export type TypedInput =
  | { kind: 'line'; text: string }
  /** Several lines that were pasted, or typed with Alt-Enter between them. */
  | { kind: 'paste'; text: string }
  /** Ctrl-C. `hadText`: the line had text, which was dropped. */
  | { kind: 'interrupt'; hadText: boolean }
  /** Ctrl-D, or the end of a file. */
  | { kind: 'end' };

export interface LineInput {
  /** Returns the next input. Between two calls nothing is read, and Ctrl-C is a signal. */
  next(prompt: string): Promise<TypedInput>;
  close(): void;
}

/** Inputs that nobody waits for yet: one chunk may hold many lines. */
export class WaitingInputs {
  private readonly waiting: TypedInput[] = [];
  private taker: ((input: TypedInput) => void) | null = null;

  get hasTaker(): boolean {
    return this.taker !== null;
  }

  /** The input that came first; null: none has come. After the end of input it is the end each time. */
  first(): TypedInput | null {
    const [first] = this.waiting;
    if (first !== undefined && first.kind !== 'end') this.waiting.shift();
    return first ?? null;
  }

  taken(): Promise<TypedInput> {
    return new Promise((resolve) => (this.taker = resolve));
  }

  /** Returns true if somebody waited for it. */
  give(input: TypedInput): boolean {
    const { taker } = this;
    this.taker = null;
    if (taker === null || input.kind === 'end') this.waiting.push(input);
    taker?.(input);
    return taker !== null;
  }

  close(): void {
    this.taker = null;
  }
}

/** The lines of a pipe or a file, as they are. */
export class PipedInput implements LineInput {
  private readonly readline: Interface;
  private readonly inputs = new WaitingInputs();

  constructor(input: NodeJS.ReadableStream) {
    this.readline = createInterface({ input, terminal: false, crlfDelay: Infinity });
    this.readline.on('line', (text) => this.give({ kind: 'line', text }));
    this.readline.on('close', () => this.give({ kind: 'end' }));
    this.readline.pause();
  }

  next(): Promise<TypedInput> {
    const first = this.inputs.first();
    if (first !== null) return Promise.resolve(first);
    const taken = this.inputs.taken();
    this.readline.resume();
    return taken;
  }

  close(): void {
    this.inputs.close();
    this.readline.close();
  }

  private give(input: TypedInput): void {
    // Reading stops after a line.
    if (this.inputs.give(input)) this.readline.pause();
  }
}
