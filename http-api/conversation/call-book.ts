import type { AnswerDelta, ChatTool } from './chat-request.js';

/** The calls of one answer, numbered as they come, and the offered tools. */
export class CallBook {
  private calls = 0;
  private readonly tools: ReadonlyMap<string, ChatTool>;

  constructor(
    tools: readonly ChatTool[],
    private readonly idOf: (index: number) => string,
  ) {
    this.tools = new Map(tools.map((tool) => [tool.name, tool]));
  }

  get count(): number {
    return this.calls;
  }

  isOffered(name: string): boolean {
    return this.tools.has(name);
  }

  /** The JSON schema of an argument; null: the tool has none for it. */
  schemaOf(name: string, key: string): object | null {
    const properties = this.tools.get(name)?.parameters['properties'];
    if (typeof properties !== 'object' || properties === null) return null;
    const schema: unknown = new Map<string, unknown>(Object.entries(properties)).get(key);
    return typeof schema === 'object' ? schema : null;
  }

  /** Begins a call. */
  begin(name: string): AnswerDelta {
    this.calls += 1;
    const index = this.calls - 1;
    return { kind: 'toolCall', index, id: this.idOf(index), name };
  }

  /** Adds arguments to the call that began last. */
  more(text: string): AnswerDelta {
    return { kind: 'toolArguments', index: this.calls - 1, text };
  }
}
