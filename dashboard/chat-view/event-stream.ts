/** An event of a stream of server-sent events: its data, or a comment. */
export interface StreamEvent {
  kind: 'data' | 'comment';
  text: string;
}

const MOST_EVENT_CHARACTERS = 4 * 1024 * 1024;

/** Reads server-sent events from a text that is divided at any place. */
export class EventStreamReader {
  private rest = '';
  private data: string[] = [];

  /** Returns the events that end within this text. Throws if a line is longer than MOST_EVENT_CHARACTERS. */
  take(text: string): StreamEvent[] {
    this.rest += text;
    const events: StreamEvent[] = [];
    let begin = 0;
    for (const { index, 0: ending } of this.rest.matchAll(/\r\n|\n|\r(?!$)/g)) {
      const event = this.takeLine(this.rest.slice(begin, index));
      if (event !== null) events.push(event);
      begin = index + ending.length;
    }
    this.rest = this.rest.slice(begin);
    if (this.rest.length > MOST_EVENT_CHARACTERS) throw new Error('the answer holds a line that is too long');
    return events;
  }

  private takeLine(line: string): StreamEvent | null {
    if (line.startsWith(':')) return { kind: 'comment', text: line.slice(1).trim() };
    if (line.startsWith('data:')) this.data.push(line.slice(line.startsWith('data: ') ? 6 : 5));
    if (line !== '' || this.data.length === 0) return null;
    const text = this.data.join('\n');
    this.data = [];
    return { kind: 'data', text };
  }
}
