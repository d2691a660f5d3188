// v-focus: the field that a user fills first has the focus when its view appears.
import type { Directive } from 'vue'

export const vFocus: Directive<HTMLElement> = { mounted: (element) => element.focus() }
