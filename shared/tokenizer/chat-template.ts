import { z } from 'zod';
import { OdmoeError } from '../errors/odmoe-error.js';
import type { ChatMessage } from '../rpc/messages.js';
import type { ChatContext } from './tokenizer.js';
import { BoundedTemplate, TemplateStepsError } from './bounded-template.js';

export interface ChatTemplate {
  /** Its text. */
  readonly source: string;
  /**
   * Throws REQUEST_INVALID when the template refuses the messages (roles out of turn and the like), TOKENIZER_INVALID when it does
   * not come to an end.
   */
  render(messages: readonly ChatMessage[], context: ChatContext): string;
}

const namedTemplateSchema = z.looseObject({ name: z.string(), template: z.string() });
const chatTemplateSchema = z.union([z.string(), z.array(namedTemplateSchema), z.record(z.string(), z.string())]);
const tokenSchema = z.union([z.string(), z.looseObject({ content: z.string() })]);
const configSchema = z.looseObject({ chat_template: chatTemplateSchema.nullish() });

/**
 * Steps that a template may take: some, and more for each message. Templates take some hundred for a message; one that loops for ever
 * would hold up all prompts behind it. Steps, not time: whether a template ends must not depend on how busy the machine is.
 */
const RENDER_STEPS = 1_000_000;
const RENDER_STEPS_PER_MESSAGE = 2000;

/** Variables of tokenizer_config.json that templates name. */
const TOKEN_VARIABLES = ['bos_token', 'eos_token', 'unk_token', 'pad_token', 'sep_token', 'cls_token', 'mask_token'];

/**
 * The model's chat template: chat_template.jinja's text where there is one, else tokenizer_config.json's chat_template
 * (a string, or named ones of which "default" counts). Null when the model has none.
 */
export function chatTemplateFrom(config: object, templateText: string | null, directory: string): ChatTemplate | null {
  const parsed = configSchema.safeParse(config);
  if (!parsed.success) {
    throw new OdmoeError(
      'TOKENIZER_INVALID',
      `${directory}/tokenizer_config.json: chat_template is neither a text nor a list of named texts; correct or remove it`,
    );
  }
  const source = templateText ?? defaultTemplate(parsed.data.chat_template ?? null);
  if (source === null) return null;
  const template = parseTemplate(source, directory);
  const tokens = tokenVariables(parsed.data);
  return {
    source,
    render(messages, { values, wallMs }) {
      const stepsLimit = RENDER_STEPS + messages.length * RENDER_STEPS_PER_MESSAGE;
      try {
        return template.render({ ...tokens, ...values, messages, add_generation_prompt: true }, stepsLimit, wallMs);
      } catch (thrown) {
        if (thrown instanceof TemplateStepsError) throw endless(directory, stepsLimit, messages.length);
        const reason = thrown instanceof Error ? thrown.message : String(thrown);
        throw new OdmoeError('REQUEST_INVALID', `the model's chat template does not take these messages: ${reason}`, {
          cause: thrown,
        });
      }
    },
  };
}

function endless(directory: string, stepsLimit: number, messages: number): OdmoeError {
  return new OdmoeError(
    'TOKENIZER_INVALID',
    `the chat template of ${directory} had not ended after ${stepsLimit} steps for ${messages} messages; correct it, or send ` +
      'plain text (--raw)',
  );
}

function defaultTemplate(chatTemplate: z.infer<typeof chatTemplateSchema> | null): string | null {
  if (chatTemplate === null || typeof chatTemplate === 'string') return chatTemplate;
  if (!Array.isArray(chatTemplate)) return chatTemplate['default'] ?? null;
  return chatTemplate.find((named) => named.name === 'default')?.template ?? null;
}

function parseTemplate(source: string, directory: string): BoundedTemplate {
  try {
    return new BoundedTemplate(source);
  } catch (thrown) {
    const reason = thrown instanceof Error ? thrown.message : String(thrown);
    throw new OdmoeError(
      'TOKENIZER_INVALID',
      `the chat template of ${directory} cannot be parsed (${reason}); correct it, or remove it and send plain text`,
      { cause: thrown },
    );
  }
}

function tokenVariables(config: Record<string, unknown>): Record<string, string> {
  const variables: Record<string, string> = {};
  for (const name of TOKEN_VARIABLES) {
    const token = tokenSchema.safeParse(config[name]);
    if (token.success) variables[name] = typeof token.data === 'string' ? token.data : token.data.content;
  }
  return variables;
}
