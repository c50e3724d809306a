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

/** Most shapes whose changes are remembered. A conversation that goes on has only a few. */
const SHAPES_LIMIT = 256;
/** Longest sequence of messages that counts as one turn when it repeats. */
const PERIOD_LIMIT = 6;
/** Number of repetitions of a turn that are examined. */
const REPEATS = 2;

/** The properties of a message that can change how a template treats it. */
interface MessageShape {
  role: string;
  calls: number;
  hasContent: boolean;
  hasReasoning: boolean;
}

/** Renders a conversation with the template. Throws REQUEST_INVALID if the template refuses it, TOKENIZER_INVALID if the template does not end. */
export type RenderMessages = (messages: readonly ChatMessage[]) => string;

/**
 * Finds out how a template treats conversations of a shape, by trials with marks in place of words. If the template drops words, writes them
 * twice or out of order, or refuses the conversation, the fewest changes are applied that avoid this. A conversation that the template writes
 * completely stays as it is.
 */
export class ConversationShaper {
  private readonly found = new RecentMap<string, readonly ConversationChange[]>(SHAPES_LIMIT);

  /** `setting`: everything else that influences the template's treatment. Throws what `render` throws, except refusals. */
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

/** Cuts a turn that repeats again and again down to two repetitions. */
function withoutRepeats(shapes: readonly MessageShape[]): MessageShape[] {
  const unrepeated: { shape: MessageShape; key: string }[] = [];
  for (const shape of shapes) {
    unrepeated.push({ shape, key: JSON.stringify(shape) });
    for (let period = 1; period <= PERIOD_LIMIT; period += 1) {
      if (!endsInRepeats(unrepeated, period)) continue;
      unrepeated.length -= period;
      break;
    }
  }
  return unrepeated.map(({ shape }) => shape);
}

function endsInRepeats(unrepeated: readonly { key: string }[], period: number): boolean {
  const compared = period * REPEATS;
  if (unrepeated.length < compared + period) return false;
  for (let back = 1; back <= compared; back += 1) {
    if (unrepeated[unrepeated.length - back]?.key !== unrepeated[unrepeated.length - back - period]?.key) return false;
  }
  return true;
}

/** A conversation of a shape, with marks as its words. */
interface Probe {
  messages: ChatMessage[];
  /** Marks of contents, in their order. The template may place a system's words anywhere. */
  marks: { text: string; isPlaced: boolean }[];
  /** Marks in the arguments of calls. */
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
        // Some templates accept only ids of nine letters and digits.
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
 * The fewest changes with which the template writes each word of the probe once. If no changes achieve that, or if the template's budget is used
 * up, those that come nearest.
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

/** Begins with all changes, and leaves out those that are not needed. */
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

/** Begins with no change, and adds the one that helps most, as long as one helps. */
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
/** Weight of a lost word, in comparison with a word that is repeated or out of place. */
const LOST = 1000;

/** Weight of words of a system or a tool that appear under another role. */
const MISSPOKEN = 100;
/** Most messages of a probe that are checked for that: each check renders twice more. */
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

/** 0: every word is in the prompt once, in its place, and under its own role. */
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
 * Counts two faults. First, messages of systems and tools whose words the template writes as the assistant's, because its last `else` takes
 * every unknown role. Second, system messages under a role that the template refuses at the start of a conversation, so that no model has
 * learned it.
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

/** True if the template accepts a system message at the start of a conversation. */
function takesSystems(render: RenderMessages): boolean {
  const user: ChatMessage = { role: 'user', content: 'odmoeuserx' };
  const system: ChatMessage = { role: 'system', content: 'odmoesystemx' };
  return rendered([user], render) === null || rendered([system, user], render) !== null;
}
