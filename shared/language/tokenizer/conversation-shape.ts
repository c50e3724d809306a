import { OdmoeError } from '../../base/errors/odmoe-error.js';
import type { ChatMessage } from '../../wire/messages.js';
import { RecentMap } from '../../base/runtime/recent-map.js';
import {
  CHANGES,
  type ConversationChange,
  isSystem,
  MOST_CHANGING,
  WHERE_CALLS_ARE,
  WHERE_NO_CALLS_ARE,
} from './conversation-changes.js';
import { PROBE_MARK } from './template-forms.js';

/** Shapes whose changes are remembered. Conversations that go on have a few between them. */
const SHAPES_LIMIT = 256;
/** Messages after one another that come again and again are one turn of a conversation: up to so many. */
const PERIOD_LIMIT = 6;
/** How often a turn that comes again is looked at. */
const REPEATS = 2;

/** What of a message makes a template treat it in another way. */
interface MessageShape {
  role: string;
  calls: number;
  hasContent: boolean;
  hasReasoning: boolean;
}

/** Renders a conversation with the template. Throws REQUEST_INVALID where the template refuses it, TOKENIZER_INVALID where it does not end. */
export type RenderMessages = (messages: readonly ChatMessage[]) => string;

/**
 * Finds out what a template does with conversations of a shape, by trying it out with marks in place of words: where it drops some, writes
 * them twice or out of order, or refuses the conversation, the fewest changes are made with which it does not. A conversation that the
 * template takes whole stays as it is.
 */
export class ConversationShaper {
  private readonly found = new RecentMap<string, readonly ConversationChange[]>(SHAPES_LIMIT);

  /** `setting`: of what else the template's treatment depends. Throws what `render` throws, but for refusals. */
  shaped(messages: readonly ChatMessage[], setting: string, render: RenderMessages): readonly ChatMessage[] {
    const shapes = withoutRepeats(messages.map(shapeOf));
    const key = JSON.stringify([setting, shapes]);
    const changes = this.found.of(key, () => neededChanges(probeOf(shapes), render));
    return changed(messages, changes);
  }
}

function changed(messages: readonly ChatMessage[], changes: readonly ConversationChange[]): readonly ChatMessage[] {
  return changes.reduce<readonly ChatMessage[]>((made, change) => change.apply(made), messages);
}

function shapeOf({ role, content, toolCalls = [], reasoningContent = '' }: ChatMessage): MessageShape {
  return { role, calls: toolCalls.length, hasContent: content !== '', hasReasoning: reasoningContent !== '' };
}

/** What comes again and again, turn after turn, stands there twice. */
function withoutRepeats(shapes: readonly MessageShape[]): MessageShape[] {
  const kept: { shape: MessageShape; key: string }[] = [];
  for (const shape of shapes) {
    kept.push({ shape, key: JSON.stringify(shape) });
    for (let period = 1; period <= PERIOD_LIMIT; period += 1) {
      if (!endsInRepeats(kept, period)) continue;
      kept.length -= period;
      break;
    }
  }
  return kept.map(({ shape }) => shape);
}

function endsInRepeats(kept: readonly { key: string }[], period: number): boolean {
  const compared = period * REPEATS;
  if (kept.length < compared + period) return false;
  for (let back = 1; back <= compared; back += 1) {
    if (kept[kept.length - back]?.key !== kept[kept.length - back - period]?.key) return false;
  }
  return true;
}

/** A conversation of a shape, whose words are marks. */
interface Probe {
  messages: ChatMessage[];
  /** Of contents, in their order. Where a system's words go is the template's affair. */
  marks: { text: string; isPlaced: boolean }[];
  /** Of the arguments of calls. */
  callMarks: string[];
}

function probeOf(shapes: readonly MessageShape[]): Probe {
  const probe: Probe = { messages: [], marks: [], callMarks: [] };
  const open: string[] = [];
  for (const [index, { role, calls, hasContent, hasReasoning }] of shapes.entries()) {
    const text = `odmoeword${index}x`;
    const message: ChatMessage = { role, content: hasContent ? text : '' };
    if (hasContent) probe.marks.push({ text, isPlaced: !isSystem(message) });
    if (hasReasoning) message.reasoningContent = 'odmoethought';
    if (calls > 0) {
      message.toolCalls = Array.from({ length: calls }, (_, call) => {
        const mark = `odmoecall${index}n${call}x`;
        probe.callMarks.push(mark);
        // Some templates take ids of nine letters and digits only.
        return {
          id: `p${String(index * 128 + call).padStart(8, '0')}`,
          name: PROBE_MARK,
          arguments: `{"a":"${mark}"}`,
        };
      });
      open.splice(0, open.length, ...message.toolCalls.map(({ id }) => id));
    }
    if (role === 'tool') Object.assign(message, { toolCallId: open.shift() ?? 'p99999999', name: PROBE_MARK });
    probe.messages.push(message);
  }
  return probe;
}

/**
 * The fewest changes with which the template writes each word of the probe once; those with which it comes nearest, if none does it, or if
 * the template takes so long that no more can be tried.
 */
function neededChanges(probe: Probe, render: RenderMessages): readonly ConversationChange[] {
  let best: Candidate = { changes: [], faults: faultsOf(probe, [], render) };
  let tried = best;
  const faultsWith = (changes: readonly ConversationChange[]): number => {
    const faults = faultsOf(probe, changes, render);
    if (faults < tried.faults) tried = { changes, faults };
    return faults;
  };
  const searches = [
    () => pruned(without(WHERE_NO_CALLS_ARE), faultsWith),
    () => pruned(without(WHERE_CALLS_ARE), faultsWith),
    () => grown(faultsWith),
  ];
  try {
    for (const search of searches) {
      if (best.faults === 0) break;
      const found = search();
      if (found.faults < best.faults) best = found;
    }
  } catch (thrown) {
    if (!(thrown instanceof OdmoeError && thrown.code === 'TOKENIZER_INVALID')) throw thrown;
    return tried.changes;
  }
  return best.changes;
}

function without(names: readonly string[]): readonly ConversationChange[] {
  return CHANGES.filter(({ name }) => !names.includes(name));
}

interface Candidate {
  changes: readonly ConversationChange[];
  faults: number;
}

/** Begins with all changes, and leaves out what is not needed. */
function pruned(
  all: readonly ConversationChange[],
  faultsWith: (changes: readonly ConversationChange[]) => number,
): Candidate {
  let [changes, faults] = [all, faultsWith(all)];
  if (faults === REFUSED) return { changes, faults };
  for (const name of MOST_CHANGING) {
    const fewer = changes.filter((change) => change.name !== name);
    if (fewer.length === changes.length) continue;
    const left = faultsWith(fewer);
    if (left <= faults) [changes, faults] = [fewer, left];
  }
  return { changes, faults };
}

/** Begins with none, and adds the one that helps most, as long as one does. */
function grown(faultsWith: (changes: readonly ConversationChange[]) => number): Candidate {
  let best: Candidate = { changes: [], faults: faultsWith([]) };
  for (;;) {
    const { changes } = best;
    const more = CHANGES.filter((change) => !changes.includes(change)).map((change) => {
      const added = CHANGES.filter((other) => other === change || changes.includes(other));
      return { changes: added, faults: faultsWith(added) };
    });
    const next = more.reduce((a, b) => (b.faults < a.faults ? b : a), best);
    if (next === best) return best;
    best = next;
  }
}

const REFUSED = Number.MAX_SAFE_INTEGER;
/** How much worse a word that is lost is than one that stands twice or elsewhere. */
const LOST = 1000;

/** How much worse words of a system or a tool are that another role says. */
const MISSPOKEN = 100;
/** Messages of a probe that are looked at for that: each is rendered twice more. */
const MOST_LOOKED_AT = 4;

/** null: the template refuses the conversation. */
function rendered(messages: readonly ChatMessage[], render: RenderMessages): string | null {
  try {
    return render(messages);
  } catch (thrown) {
    if (thrown instanceof OdmoeError && thrown.code === 'REQUEST_INVALID') return null;
    throw thrown;
  }
}

/** 0: every word is in the prompt once, in its place, and said by its own role. */
function faultsOf(probe: Probe, changes: readonly ConversationChange[], render: RenderMessages): number {
  const messages = changed(probe.messages, changes);
  const text = rendered(messages, render);
  if (text === null) return REFUSED;
  let faults = MISSPOKEN * misspokenMessages(messages, text, render);
  let before = -1;
  for (const { text: mark, isPlaced } of probe.marks) {
    const at = text.indexOf(mark);
    if (at < 0) faults += LOST;
    else if (text.includes(mark, at + 1)) faults += 1;
    if (!isPlaced || at < 0) continue;
    if (at < before) faults += 1;
    before = at;
  }
  for (const mark of probe.callMarks) if (!text.includes(mark)) faults += LOST;
  return faults;
}

/**
 * Messages of systems and tools whose words the template writes as the assistant's, because its last `else` takes every role that it does
 * not know; and systems under a role that it refuses at the start of a conversation, so that no model has learned it.
 */
function misspokenMessages(messages: readonly ChatMessage[], text: string, render: RenderMessages): number {
  const spoken = [...messages.entries()]
    .filter(([, message]) => isSystem(message) || message.role === 'tool')
    .slice(0, MOST_LOOKED_AT);
  const laterSystems = spoken.filter(([index, message]) => index > 0 && isSystem(message)).length;
  if (laterSystems > 0 && !takesSystems(render)) return laterSystems;
  return spoken.filter(([index]) => {
    const saidBy = (role: string): string | null =>
      rendered(
        messages.map((message, at) => (at === index ? { ...message, role } : message)),
        render,
      );
    return saidBy('assistant') === text && saidBy('user') !== text;
  }).length;
}

/** At the start of a conversation. */
function takesSystems(render: RenderMessages): boolean {
  const user: ChatMessage = { role: 'user', content: 'odmoeuserx' };
  const system: ChatMessage = { role: 'system', content: 'odmoesystemx' };
  return rendered([user], render) === null || rendered([system, user], render) !== null;
}
