import { machineTarget } from './byte-machine.js';
import { FRAME_DEPTH_LIMIT, REMEMBERED_FRAMES_LIMIT, FRAMES_LIMIT, REMEMBERED_STATES_LIMIT } from './format-limits.js';
import type { GrammarNode } from './grammar.js';
import type { ShortestTexts } from './shortest-texts.js';

/** The rest of a text: a node, begun or not, and the frame after it. Equal frames are one object. */
interface Frame {
  readonly id: number;
  readonly node: GrammarNode;
  /** The state of a machine or of characters. */
  readonly state: number;
  /** For a repetition: least and most further repeats. For characters: least and most further characters. */
  readonly least: number;
  readonly most: number;
  readonly rest: Frame | null;
  /** Bytes of the shortest text of the frame and all frames after it. */
  readonly bytes: number;
  readonly depth: number;
  /** This frame with clamped counters; null: not computed yet. */
  clamped: Frame | null;
}

/** All possible continuations at one place of a text. */
export interface AutomatonState {
  /** Each frame begins with a machine. */
  readonly frames: readonly Frame[];
  /** The text may end here. */
  readonly isWhole: boolean;
  /** Bytes of the shortest text that completes the text. */
  readonly bytes: number;
  /** States after each byte; null: the byte is not allowed; left out: not computed yet, or forgotten. */
  readonly next: (AutomatonState | null | undefined)[];
  /** The next state for each list of machine targets that a byte has produced. Most bytes share few such lists. */
  readonly byTargets: Map<string, AutomatonState | null>;
}

/** A state with clamped counters: counters that no token reaches are made equal, so that one remembered mask serves many states. */
export interface ClampedState {
  readonly state: AutomatonState;
  /** The real state's `bytes` are larger by at most this number. */
  readonly bytesLess: number;
}

/**
 * Reads a text byte by byte, through all alternatives of the grammar at once. Every state can be completed. The result depends only on the
 * grammar and the bytes, not on what is remembered.
 */
export class TextAutomaton {
  private frames = new Map<string, Frame>();
  private states = new Map<string, AutomatonState>();
  /** States with known next states. Their links are cut when states are forgotten: otherwise a holder of one state would hold all states after it. */
  private readonly leading = new Set<AutomatonState>();
  private framesMade = 0;
  readonly start: AutomatonState | null;

  constructor(
    root: GrammarNode,
    private readonly shortest: ShortestTexts,
  ) {
    this.start = this.stateOf((ways) => ways.enter(this.frameOf(root, null)));
  }

  /** Null: the text must not continue with this byte. */
  next(state: AutomatonState, byte: number): AutomatonState | null {
    const known = state.next[byte];
    if (known !== undefined) return known;
    const targets = state.frames.map((frame) => targetOf(frame, byte, false));
    const key = targets.join(' ');
    let next = state.byTargets.get(key);
    if (next === undefined) {
      next = this.step(state, targets);
      state.byTargets.set(key, next);
    }
    state.next[byte] = next;
    this.leading.add(state);
    return next;
  }

  /** Like next, for a byte of a special token's name. */
  nextSpecial(state: AutomatonState, byte: number): AutomatonState | null {
    return this.step(
      state,
      state.frames.map((frame) => targetOf(frame, byte, true)),
    );
  }

  /** `reach`: bytes of the longest token. */
  clamp(state: AutomatonState, reach: number): ClampedState {
    const clamped = state.frames.map((frame) => this.clampFrame(frame, reach));
    if (clamped.every((frame, index) => frame === state.frames[index])) return { state, bytesLess: 0 };
    const bytesLess = clamped.map((frame, index) => (state.frames[index]?.bytes ?? 0) - frame.bytes);
    return { state: this.keep([...new Set(clamped)], state.isWhole), bytesLess: Math.max(...bytesLess) };
  }

  private clampFrame(frame: Frame, reach: number): Frame {
    // From the innermost frame outwards, without recursion: the stack may be deeper than calls can be.
    const stack: Frame[] = [];
    for (let at: Frame | null = frame; at !== null && at.clamped === null; at = at.rest) stack.push(at);
    for (const at of stack.reverse()) {
      const { node, state, least, most } = at;
      const rest = at.rest?.clamped ?? null;
      const counts = { least: Math.min(least, reach + 1), most: most > reach ? Infinity : most };
      const isSame = rest === at.rest && counts.least === least && counts.most === most;
      at.clamped = isSame ? at : this.frame(node, { state, ...counts, rest });
    }
    return frame.clamped ?? frame;
  }

  /** `targets`: the next state of each of the state's machines; -1: none. */
  private step({ frames }: AutomatonState, targets: readonly number[]): AutomatonState | null {
    return this.stateOf((ways) => {
      for (const [index, { node, rest }] of frames.entries()) {
        const target = targets[index] ?? -1;
        if (target >= 0) ways.enter(this.frame(node, { state: target, least: 0, most: 0, rest }));
      }
    });
  }

  private stateOf(enterAll: (ways: OpenWays) => void): AutomatonState | null {
    const ways = new OpenWays(this);
    enterAll(ways);
    if (ways.frames.length === 0 && !ways.isWhole) return null;
    return this.keep(ways.shortest(), ways.isWhole);
  }

  /** The order of frames matters: it decides which ones are dropped when there are too many. */
  private keep(frames: readonly Frame[], isWhole: boolean): AutomatonState {
    if (this.states.size >= REMEMBERED_STATES_LIMIT || this.frames.size >= REMEMBERED_FRAMES_LIMIT) {
      this.forget();
    }
    const key = `${frames.map(({ id }) => id).join(' ')}${isWhole ? ' end' : ''}`;
    const known = this.states.get(key);
    if (known !== undefined) return known;
    const bytes = isWhole ? 0 : frames.reduce((least, frame) => Math.min(least, frame.bytes), Infinity);
    const state: AutomatonState = { frames, isWhole, bytes, next: [], byTargets: new Map() };
    this.states.set(key, state);
    return state;
  }

  private forget(): void {
    this.states = new Map();
    this.frames = new Map();
    for (const { next, byTargets } of this.leading) {
      next.length = 0;
      byTargets.clear();
    }
    this.leading.clear();
  }

  /** The frame of a node that has not begun. */
  frameOf(node: GrammarNode, rest: Frame | null): Frame {
    const isCounted = node.kind === 'repeat' || node.kind === 'characters';
    const [least, most] = isCounted ? [node.least, node.most] : [0, 0];
    return this.frame(node, { state: 0, least, most, rest });
  }

  frame(node: GrammarNode, { state, least, most, rest }: Pick<Frame, 'state' | 'least' | 'most' | 'rest'>): Frame {
    const key = `${node.id} ${state} ${least} ${most} ${rest?.id ?? -1}`;
    const known = this.frames.get(key);
    if (known !== undefined) return known;
    const bytes = this.shortestOf(node, state, least) + (rest?.bytes ?? 0);
    const depth = (rest?.depth ?? 0) + 1;
    const frame: Frame = { id: this.framesMade++, node, state, least, most, rest, bytes, depth, clamped: null };
    this.frames.set(key, frame);
    return frame;
  }

  shortestOf(node: GrammarNode, state: number, least: number): number {
    const { ofNode, ofStates, ofCharacter } = this.shortest;
    if (node.kind === 'repeat') return least === 0 ? 0 : least * (ofNode[node.body.id] ?? Infinity);
    if (node.kind === 'characters' && least > 0) return least * (ofCharacter[node.id] ?? Infinity);
    return ofStates[node.id]?.[state] ?? ofNode[node.id] ?? Infinity;
  }
}

/** The state of the frame's machine after a byte; -1: none. */
function targetOf({ node, state }: Frame, byte: number, isSpecial: boolean): number {
  if (node.kind !== 'machine' || (isSpecial && !node.machine.takesSpecialTokens)) return -1;
  const from = node.machine.states[state];
  return from === undefined ? -1 : machineTarget(from, byte);
}

/** Opens frames until each one begins with a machine, which reads a byte. */
class OpenWays {
  readonly frames: Frame[] = [];
  isWhole = false;
  private readonly seen = new Set<Frame>();
  private readonly waiting: (Frame | null)[] = [];

  constructor(private readonly automaton: TextAutomaton) {}

  enter(frame: Frame): void {
    this.waiting.push(frame);
    while (this.waiting.length > 0) {
      const next = this.waiting.pop() ?? null;
      if (next === null) this.isWhole = true;
      else if (next.bytes !== Infinity && !this.seen.has(next)) {
        this.seen.add(next);
        this.open(next);
      }
    }
  }

  /** The frames that remain, in the order in which they were found. */
  shortest(): readonly Frame[] {
    if (this.frames.length <= FRAMES_LIMIT) return this.frames;
    return [...this.frames].sort((a, b) => a.bytes - b.bytes).slice(0, FRAMES_LIMIT);
  }

  private open(frame: Frame): void {
    const { automaton, waiting } = this;
    const { node, state, least, most, rest, depth } = frame;
    const ways: (Frame | null)[] = [];
    switch (node.kind) {
      case 'machine': {
        const at = node.machine.states[state];
        if (at === undefined) return;
        if (at.edges.length > 0) this.frames.push(frame);
        if (at.isFinal) waiting.push(rest);
        return;
      }
      case 'sequence': {
        waiting.push(node.items.reduceRight((behind, item) => automaton.frameOf(item, behind), rest));
        return;
      }
      case 'choice':
        for (const option of node.options) ways.push(automaton.frameOf(option, rest));
        break;
      case 'repeat':
        if (most > 0) {
          const again = automaton.frame(node, { state: 0, least: Math.max(0, least - 1), most: most - 1, rest });
          ways.push(automaton.frameOf(node.body, again));
        }
        if (least === 0) ways.push(rest);
        break;
      case 'characters': {
        const at = node.states[state];
        for (const { character, target } of most > 0 ? (at?.edges ?? []) : []) {
          const counts = { least: Math.max(0, least - 1), most: most - 1 };
          ways.push(automaton.frameOf(character, automaton.frame(node, { state: target, ...counts, rest })));
        }
        if (at?.isFinal === true && least === 0) ways.push(rest);
        break;
      }
      case 'rule':
        if (node.rule.node !== null) ways.push(automaton.frameOf(node.rule.node, rest));
        break;
    }
    const bytesOf = (way: Frame | null): number => way?.bytes ?? 0;
    const isDeep = depth > FRAME_DEPTH_LIMIT;
    const open = isDeep ? ways.filter((way) => bytesOf(way) <= frame.bytes) : ways;
    // The frame that was pushed last is opened first.
    for (const way of open.reverse()) waiting.push(way);
  }
}
