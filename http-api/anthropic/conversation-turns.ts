import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ChatMessage, ToolCall } from '../../shared/wire/messages.js';
import { type ReadPart, readText, requireWords } from '../conversation/unread-part.js';
import { writtenJson } from '../requests/written-json.js';
import type { ContentBlock, AnthropicMessage, ResultContent, TextParameter } from './messages-schema.js';
import { readOtherBlock } from './other-blocks.js';

/** A block with its field in the request, for errors. */
interface PlacedBlock {
  block: ContentBlock;
  field: string;
}

interface Turn {
  role: AnthropicMessage['role'];
  blocks: PlacedBlock[];
}

/**
 * Turns Anthropic's messages into messages of the conversation. Adjacent messages of one role form one turn. A tool's result becomes a
 * message of its own, and a note replaces a block that no model here reads. Throws REQUEST_INVALID with the field.
 */
export function fromAnthropicMessages(
  system: TextParameter | undefined,
  messages: readonly AnthropicMessage[],
): ChatMessage[] {
  const systemText = system === undefined ? '' : textOfSystem(system);
  const conversation: ChatMessage[] = systemText === '' ? [] : [{ role: 'system', content: systemText }];
  const toolNames = new Map<string, string>();
  const turns = turnsOf(messages);
  requireNewestWords(turns.at(-1));
  for (const turn of turns) {
    if (turn.role === 'assistant') conversation.push(assistantMessage(turn, toolNames));
    else conversation.push(...askingMessages(turn, toolNames));
  }
  if (conversation.at(-1)?.toolCalls !== undefined) {
    throw invalid('messages', 'the last message calls a tool; a user message with its tool_result must follow');
  }
  return conversation;
}

/**
 * A line that Claude Code puts before its system text, `x-anthropic-billing-header: ... cch=...`. It changes with each request and is meant for
 * the service alone: in a prompt it would keep every request from using the rows of earlier ones again.
 */
const BILLING_HEADER = /^x-anthropic-billing-header:[^\n]*(?:\n|$)/gm;

/** The text of the system without that header, each block on its own line. */
function textOfSystem(system: TextParameter): string {
  if (typeof system === 'string') return system.replace(BILLING_HEADER, '');
  const texts = system.map((block) => readBlock(block)?.text.replace(BILLING_HEADER, '') ?? '');
  return texts.filter((text) => text !== '').join('\n');
}

function turnsOf(messages: readonly AnthropicMessage[]): Turn[] {
  const turns: Turn[] = [];
  for (const [index, { role, content }] of messages.entries()) {
    const field = `messages[${index}].content`;
    const blocks: PlacedBlock[] =
      typeof content === 'string'
        ? [{ block: { type: 'text', text: content }, field }]
        : content.map((block, place) => ({ block, field: `${field}[${place}]` }));
    const last = turns.at(-1);
    if (last?.role === role) last.blocks.push(...blocks);
    else turns.push({ role, blocks });
  }
  return turns;
}

/** A user who sends no more than, say, a picture expects an answer to it. */
function requireNewestWords(turn: Turn | undefined): void {
  if (turn?.role !== 'user' || turn.blocks.some(({ block }) => block.type === 'tool_result')) return;
  const parts = turn.blocks.map(({ block }) => readBlock(block)).filter((part) => part !== null);
  const field = turn.blocks[0]?.field ?? 'messages';
  if (parts.length === 0 && turn.blocks.every(({ block }) => block.type === 'other')) {
    throw invalid(field, 'it holds nothing that this model can read; this model reads text, so say it in words');
  }
  requireWords(parts, field);
}

/** The words of a block; null: it is none of words. */
function readBlock(block: ContentBlock): ReadPart | null {
  if (block.type === 'text') return readText(block.text);
  return block.type === 'other' ? readOtherBlock(block.given) : null;
}

/** Builds the message of an assistant: text, reasoning and calls. Its blocks of text are joined in their order; other blocks become lines. */
function assistantMessage({ blocks }: Turn, toolNames: Map<string, string>): ChatMessage {
  let [content, reasoningContent] = ['', ''];
  let isLineOpen = true;
  const toolCalls: ToolCall[] = [];
  for (const { block, field } of blocks) {
    const said = readBlock(block);
    if (said !== null) {
      const continues = block.type === 'text' && isLineOpen;
      content += continues || content === '' ? said.text : `\n${said.text}`;
      isLineOpen = block.type === 'text';
    } else if (block.type === 'other') continue;
    else if (block.type === 'thinking') reasoningContent += block.thinking;
    else if (block.type === 'tool_use') {
      toolCalls.push({ id: block.id, name: block.name, arguments: writtenJson(block.input) });
      toolNames.set(block.id, block.name);
    } else throw misplaced(block.type, field, 'assistant');
  }
  return {
    role: 'assistant',
    content,
    ...(reasoningContent !== '' && { reasoningContent }),
    ...(toolCalls.length > 0 && { toolCalls }),
  };
}

/** Builds the messages of a user or the system: results of tools and texts, in their order. */
function askingMessages({ role, blocks }: Turn, toolNames: ReadonlyMap<string, string>): ChatMessage[] {
  const messages: ChatMessage[] = [];
  for (const { block, field } of blocks) {
    const said = readBlock(block);
    if (said !== null) {
      const last = messages.at(-1);
      if (last?.role === role) last.content += `\n${said.text}`;
      else messages.push({ role, content: said.text });
    } else if (block.type === 'other') continue;
    else if (block.type === 'tool_result' && role === 'user') {
      const name = toolNames.get(block.tool_use_id);
      if (name === undefined) {
        throw invalid(`${field}.tool_use_id`, `no tool_use before it has the id ${JSON.stringify(block.tool_use_id)}`);
      }
      const content = `${block.is_error === true ? 'Error: ' : ''}${resultText(block.content)}`;
      messages.push({ role: 'tool', content, toolCallId: block.tool_use_id, name });
    } else throw misplaced(block.type, field, role);
  }
  return messages;
}

/** The text of a tool's result, each block on its own line. */
function resultText(content: ResultContent): string {
  if (typeof content === 'string') return content;
  const parts = (content ?? []).map(readBlock).filter((part) => part !== null);
  return parts.map(({ text }) => text).join('\n');
}

function misplaced(type: string, field: string, role: string): OdmoeError {
  return invalid(field, `a message of the role ${role} cannot hold a ${type}`);
}

function invalid(field: string, message: string): OdmoeError {
  return new OdmoeError('REQUEST_INVALID', `${field}: ${message}`, { field });
}
